/* test_api_fields.c: every field of OpenAI's and Anthropic's requests is honoured or refused by its name. The tables follow the types of the official clients. */
#include "unit/api_kit.h"

static int start(void **state) {
    (void)state;
    return kit_start("models/ember-30m-q8_0.gguf", NULL);
}
static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

/* A member of a request, and whether it is fine with a model that does not think. */
typedef struct field_case {
    bool fine;
    const char *member;
} field_case;

#define USER "{\"role\":\"user\",\"content\":\"Hi\"}"
#define FUNCTION "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{}}}}"

/* The field that a refusal names, as it begins in the member. */
static void name_of(const char *member, char *name, size_t cap) { snprintf(name, cap, "%.*s", (int)strcspn(member + 1, "\""), member + 1); }

static void check_table(const char *path, const char *rest, const field_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char name[64], usual_text[1024], own_text[1024];
        int status;
        name_of(cases[i].member, name, sizeof name);
        snprintf(usual_text, sizeof usual_text, "{%s}", rest);
        snprintf(own_text, sizeof own_text, "{%s}", cases[i].member);
        json_t *usual = json_loads(usual_text, 0, NULL), *all = json_loads(own_text, 0, NULL);
        if (!usual || !all) fail_msg("no JSON: %s", own_text);
        /* A field of the case takes the place of the usual one. */
        json_object_update(usual, all);
        char *text = json_dumps(usual, JSON_COMPACT);
        json_t *answer = post(path, text, &status);
        if (cases[i].fine != (status == 200)) fail_msg("%s %s: %d %s", path, text, status, text_at(answer, "error.message"));
        if (!cases[i].fine) {
            assert_int_equal(status, 400);
            const bool anthropic = strcmp(path, "/v1/messages") == 0;
            const char *where = anthropic ? text_at(answer, "error.message") : text_at(answer, "error.param");
            if (!strstr(where, name)) fail_msg("%s %s: the refusal names '%s'", path, text, where);
            if (anthropic) assert_string_equal(text_at(answer, "type"), "error");
        }
        free(text);
        json_decref(answer);
        json_decref(usual);
        json_decref(all);
    }
}
#define CHECK(path, rest, cases) check_table(path, rest, cases, sizeof cases / sizeof *cases)

/* What both of OpenAI's older APIs have. */
static const field_case shared[] = {
    {true, "\"model\":\"ember\""}, {true, "\"model\":\"default\""}, {true, "\"frequency_penalty\":1.5"}, {false, "\"frequency_penalty\":3"}, {true, "\"presence_penalty\":-2"},
    {false, "\"presence_penalty\":\"x\""}, {true, "\"logit_bias\":{\"5\":-100,\"6\":3.5}"}, {false, "\"logit_bias\":{\"x\":1}"}, {false, "\"logit_bias\":{\"5\":200}"},
    {true, "\"n\":2"}, {false, "\"n\":0"}, {true, "\"seed\":7"}, {false, "\"seed\":1.5"}, {true, "\"stop\":\"x\""}, {true, "\"stop\":[\"x\",\"y\"]"}, {false, "\"stop\":[\"\"]"},
    {false, "\"stop\":5"}, {true, "\"stop\":null"}, {true, "\"stream\":false"}, {false, "\"stream\":1"}, {false, "\"stream_options\":{\"include_usage\":true}"},
    {true, "\"temperature\":2"}, {false, "\"temperature\":2.1"}, {true, "\"top_p\":0.5"}, {false, "\"top_p\":-1"}, {true, "\"user\":\"u\""}, {false, "\"user\":5"},
    {true, "\"top_k\":5"}, {true, "\"min_p\":0.1"}, {true, "\"typical_p\":0.9"}, {true, "\"repeat_penalty\":1.1"}, {true, "\"dry_multiplier\":0.5,\"dry_base\":1.5"},
    {true, "\"priority\":3"}, {true, "\"timeout\":60"}, {false, "\"timeout\":-1"}, {true, "\"ignore_eos\":true"}, {true, "\"regex\":\"[ab]+\""}, {false, "\"regex\":\"(\""},
    {true, "\"grammar\":\"root ::= \\\"a\\\"\""}, {false, "\"grammar\":\"root ::= x\""}, {true, "\"json_schema\":{\"type\":\"boolean\"}"}, {false, "\"json_schema\":{\"type\":\"king\"}"},
    {false, "\"no_such_field\":1"}, {false, "\"max_tokens\":0"}, {true, "\"max_tokens\":2"},
};

static void test_chat(void **state) {
    (void)state;
    static const field_case own[] = {
        {false, "\"messages\":[]"}, {false, "\"messages\":\"Hi\""}, {false, "\"messages\":[{\"role\":\"function\",\"content\":\"x\"}]"},
        {true, "\"messages\":[{\"role\":\"developer\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}],\"name\":\"n\"}]"},
        {false, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]"},
        {false, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}]"},
        {false, "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"[\"}}]}," USER "]"},
        {true, "\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"annotations\":[],\"audio\":null,\"reasoning_content\":\"r\"}," USER "]"},
        {false, "\"audio\":{\"voice\":\"x\",\"format\":\"mp3\"}"}, {true, "\"audio\":null"}, {false, "\"function_call\":\"auto\""}, {false, "\"functions\":[]"},
        {true, "\"logprobs\":true"}, {true, "\"logprobs\":true,\"top_logprobs\":20"}, {false, "\"top_logprobs\":2"}, {false, "\"top_logprobs\":21,\"logprobs\":true"},
        {true, "\"max_completion_tokens\":2"}, {true, "\"metadata\":{\"a\":\"b\"}"}, {true, "\"modalities\":[\"text\"]"}, {false, "\"modalities\":[\"audio\"]"}, {false, "\"moderation\":{}"},
        {true, "\"parallel_tool_calls\":false"}, {false, "\"prediction\":{\"type\":\"content\",\"content\":\"x\"}"}, {true, "\"prompt_cache_key\":\"k\""},
        {true, "\"prompt_cache_options\":{\"mode\":\"implicit\"}"}, {true, "\"prompt_cache_retention\":\"24h\""}, {true, "\"reasoning_effort\":\"none\""}, {false, "\"reasoning_effort\":\"high\""},
        {true, "\"response_format\":{\"type\":\"text\"}"}, {true, "\"response_format\":{\"type\":\"json_object\"}"}, {false, "\"response_format\":{\"type\":\"grammar\"}"},
        {true, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,\"schema\":{\"type\":\"boolean\"}}}"}, {false, "\"response_format\":{\"type\":\"json_schema\"}"},
        {true, "\"safety_identifier\":\"s\""}, {true, "\"service_tier\":\"auto\""}, {false, "\"service_tier\":\"flex\""}, {true, "\"store\":false"}, {false, "\"store\":true"},
        {true, "\"tools\":[" FUNCTION "]"}, {true, "\"tools\":[" FUNCTION "],\"tool_choice\":\"auto\""}, {true, "\"tools\":[" FUNCTION "],\"tool_choice\":\"none\""},
        {true, "\"tools\":[" FUNCTION "],\"tool_choice\":\"required\""}, {true, "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},\"tools\":[" FUNCTION "]"},
        {false, "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}},\"tools\":[" FUNCTION "]"}, {false, "\"tool_choice\":\"required\""}, {true, "\"tool_choice\":\"none\""},
        {false, "\"tool_choice\":{\"type\":\"allowed_tools\"},\"tools\":[" FUNCTION "]"}, {false, "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}]"}, {false, "\"tools\":5"},
        {true, "\"verbosity\":\"medium\""}, {false, "\"verbosity\":\"low\""}, {false, "\"web_search_options\":{}"}, {true, "\"chat_template_kwargs\":{\"x\":1}"}, {false, "\"chat_template_kwargs\":[]"},
    };
    CHECK("/v1/chat/completions", "\"messages\":[" USER "],\"max_tokens\":1", shared);
    CHECK("/v1/chat/completions", "\"messages\":[" USER "],\"max_completion_tokens\":1", own);
}

static void test_completions(void **state) {
    (void)state;
    static const field_case own[] = {
        {true, "\"prompt\":[\"a\",\"b\"]"}, {true, "\"prompt\":[5,6]"}, {true, "\"prompt\":[[5],[6]]"}, {false, "\"prompt\":\"\""}, {false, "\"prompt\":[-1]"}, {true, "\"best_of\":1"},
        {false, "\"best_of\":3"}, {true, "\"echo\":true"}, {true, "\"logprobs\":3"}, {false, "\"logprobs\":true"}, {false, "\"suffix\":\"x\""}, {true, "\"suffix\":null"},
        {false, "\"messages\":[]"}, {false, "\"tools\":[]"},
    };
    CHECK("/v1/completions", "\"prompt\":\"Once\",\"max_tokens\":1", shared);
    CHECK("/v1/completions", "\"prompt\":\"Once\",\"max_tokens\":1", own);
}

#define TOOL "{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\",\"properties\":{}}}"

static void test_messages(void **state) {
    (void)state;
    static const field_case own[] = {
        {false, "\"max_tokens\":0"}, {false, "\"model\":5"}, {false, "\"messages\":[]"}, {false, "\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]"}, {false, "\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"y\":1}]"},
        {true, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"},\"citations\":null}]}]"},
        {false, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"forever\"}}]}]"},
        {false, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"citations\":[{}]}]}]"},
        {false, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]"}, {false, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"source\":{}}]}]"},
        {true, "\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"s\"},{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{}}]},"
               "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"i\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}],\"is_error\":true}]}]"},
        {true, "\"cache_control\":{\"type\":\"ephemeral\"}"}, {false, "\"cache_control\":{\"type\":\"x\"}"}, {false, "\"container\":\"c\""}, {false, "\"diagnostics\":{}"}, {false, "\"inference_geo\":\"eu\""},
        {true, "\"metadata\":{\"user_id\":\"u\"}"}, {true, "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"boolean\"}}}"}, {false, "\"output_config\":{\"format\":{\"type\":\"xml\"}}"},
        {false, "\"output_config\":{\"effort\":\"high\"}"}, {true, "\"service_tier\":\"standard_only\""}, {false, "\"service_tier\":\"x\""}, {true, "\"speed\":\"standard\""}, {false, "\"speed\":\"fast\""},
        {true, "\"stop_sequences\":[\"x\"]"}, {false, "\"stop_sequences\":[5]"}, {true, "\"system\":\"s\""}, {true, "\"system\":[{\"type\":\"text\",\"text\":\"s\"}]"}, {false, "\"system\":5"},
        {true, "\"temperature\":1"}, {false, "\"temperature\":1.5"}, {true, "\"top_p\":0.5"}, {true, "\"top_k\":5"}, {true, "\"thinking\":{\"type\":\"disabled\"}"}, {true, "\"thinking\":{\"type\":\"adaptive\"}"},
        {false, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"max_tokens\":2000"}, {false, "\"thinking\":{\"type\":\"deep\"}"}, {true, "\"tools\":[" TOOL "]"},
        {true, "\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"any\"}"}, {true, "\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"none\"}"}, {true, "\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}"},
        {true, "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"},\"tools\":[" TOOL "]"}, {false, "\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"},\"tools\":[" TOOL "]"}, {false, "\"tool_choice\":{\"type\":\"some\"},\"tools\":[" TOOL "]"},
        {false, "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]"}, {true, "\"user_profile_id\":\"u\""}, {false, "\"workspace_id\":\"w\""}, {false, "\"mcp_servers\":[]"}, {false, "\"no_such_field\":1"},
    };
    CHECK("/v1/messages", "\"model\":\"ember\",\"max_tokens\":1,\"messages\":[" USER "]", own);
}

static void test_responses(void **state) {
    (void)state;
    static const field_case own[] = {
        {true, "\"input\":[" USER "]"}, {false, "\"input\":7"}, {false, "\"input\":[]"}, {true, "\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":\"x\"}," USER "]"},
        {true, "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]}]"}, {false, "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"x\"}]}]"},
        {true, "\"input\":[" USER ",{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\","
               "\"status\":\"completed\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]"},
        {false, "\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]"}, {false, "\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{\"}]"}, {true, "\"background\":false"},
        {false, "\"background\":true"}, {false, "\"context_management\":[]"}, {false, "\"conversation\":\"c\""}, {true, "\"include\":[]"}, {true, "\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":2"},
        {true, "\"include\":[\"reasoning.encrypted_content\",\"web_search_call.results\"]"}, {false, "\"include\":[\"x\"]"}, {true, "\"instructions\":\"i\""}, {true, "\"max_output_tokens\":2"},
        {true, "\"metadata\":{\"a\":\"b\"}"}, {false, "\"metadata\":5"}, {false, "\"moderation\":{}"}, {true, "\"parallel_tool_calls\":false"}, {false, "\"previous_response_id\":\"resp_none\""}, {false, "\"prompt\":{\"id\":\"x\"}"},
        {true, "\"prompt_cache_key\":\"k\""}, {true, "\"prompt_cache_retention\":\"24h\""}, {true, "\"reasoning\":{\"summary\":\"auto\"}"}, {false, "\"reasoning\":{\"effort\":\"high\"}"}, {false, "\"reasoning\":5"},
        {true, "\"safety_identifier\":\"s\""}, {true, "\"service_tier\":\"default\""}, {false, "\"service_tier\":\"priority\""}, {true, "\"store\":false"}, {false, "\"stream_options\":{}"}, {true, "\"temperature\":0.5"},
        {false, "\"temperature\":3"}, {true, "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"type\":\"boolean\"}},\"verbosity\":\"medium\"}"}, {false, "\"text\":{\"format\":{\"type\":\"x\"}}"},
        {false, "\"text\":{\"verbosity\":\"high\"}"}, {true, "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":null,\"strict\":null}]"}, {false, "\"tools\":[{\"type\":\"web_search\"}]"},
        {true, "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]"}, {false, "\"tool_choice\":\"required\""}, {false, "\"tool_choice\":{\"type\":\"file_search\"},\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]"},
        {true, "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"},\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]"}, {true, "\"top_logprobs\":5"}, {false, "\"top_logprobs\":50"}, {true, "\"top_p\":1"},
        {false, "\"truncation\":\"auto\""}, {true, "\"truncation\":\"disabled\""}, {true, "\"user\":\"u\""}, {true, "\"max_tool_calls\":3"}, {false, "\"n\":2"}, {false, "\"messages\":[]"}, {true, "\"seed\":5"},
    };
    CHECK("/v1/responses", "\"input\":\"Hi\",\"max_output_tokens\":1", own);
}

/* ---- what some of them do ---- */

static char *completion(double temperature, const char *more) {
    char body[512];
    int status;
    snprintf(body, sizeof body, "{\"prompt\":\"Once upon a time\",\"max_tokens\":24,\"temperature\":%g%s}", temperature, more);
    json_t *j = post("/v1/completions", body, &status);
    assert_int_equal(status, 200);
    char *text = strdup(text_at(j, "choices.0.text"));
    json_decref(j);
    return text;
}

static void test_effects(void **state) {
    (void)state;
    char *plain = completion(0, ""), *again = completion(0, ""), *penalised = completion(0, ",\"frequency_penalty\":2,\"presence_penalty\":2");
    assert_string_equal(plain, again);
    assert_string_not_equal(plain, penalised);
    char *one = completion(1.5, ",\"seed\":3"), *same = completion(1.5, ",\"seed\":3"), *other = completion(1.5, ",\"seed\":4");
    assert_string_equal(one, same);
    assert_string_not_equal(one, other);
    char *all[] = {plain, again, penalised, one, same, other};
    for (size_t i = 0; i < 6; i++) free(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat), cmocka_unit_test(test_completions), cmocka_unit_test(test_messages), cmocka_unit_test(test_responses), cmocka_unit_test(test_effects),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
