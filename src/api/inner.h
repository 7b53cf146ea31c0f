/* inner.h: what the files of this room share.
 *
 *   api.c          routes, errors, models, health
 *   fields.c       reads the fields of a request from a table
 *   text.c         strings, tokens, templates
 *   generate.c     from sampling fields to a ticket, and waiting for it
 *   shape.c        what an answer must look like
 *   messages.c     conversations as templates want them
 *   blocks.c       Anthropic's conversations in the same form
 *   answer.c       cuts what a model writes into thoughts, text and calls
 *   tools.c        finds tool calls in it
 *   chat.c         /v1/chat/completions
 *   completions.c  /v1/completions
 *   agents.c       /v1/agents, and the agents of requests
 *   agent_note.c   the messages that are kept with an agent
 *   embeddings.c   /v1/embeddings
 *   responses.c    /v1/responses, with response_items.c, response_maker.c and response_state.c
 *   anthropic.c    /v1/messages
 *   metrics.c      /metrics
 *   page.c         the page
 *   admin.c        /admin
 *   models.c       several models by name, each with an api of its own */
#ifndef API_INNER_H
#define API_INNER_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "api/models.h"
#include "base/clock.h"
#include "engine/agents.h"

typedef struct thinking thinking;

/* A grammar that was used lately. */
enum { KEPT_SHAPES = 32 };
typedef struct kept_shape {
    hearth_grammar_kind kind;
    char *text;
    size_t len;
    hearth_grammar *grammar;
    uint64_t used;
} kept_shape;

/* The routes of one model. A server with several has one of these for each, and one without engine and loop before them all. */
struct api {
    hearth_engine *engine;
    loop *loop;
    models *models;                /* NULL: there is only this one */
    agents *agents;
    api_options o;
    hearth_model_info info;
    const thinking *thinks;        /* NULL: the model does not */
    int32_t shown[LOOP_SHOWN];     /* control tokens that mark thoughts */
    int n_shown;
    loop_thoughts thoughts;        /* how their length is bounded */
    long started;                  /* unix time */
    _Atomic uint64_t ids;
    _Atomic uint64_t own_statuses[6], *statuses; /* replies by first digit; counted together for all models */
    struct response_state *own_responses, *responses; /* of all models */
    pthread_mutex_t shapes_lock;
    kept_shape shapes[KEPT_SHAPES];
    uint64_t shapes_clock;
};

/* ---- errors ---- */

typedef enum api_style { API_OPENAI, API_ANTHROPIC } api_style;

/* Why a request is refused. Zero-initialised is none. */
typedef struct refusal {
    int status;       /* 0: told by e.code */
    const char *code; /* OpenAI's short word, or NULL */
    char param[64];   /* the field, or "" */
    err e;
} refusal;
/* All return false. */
bool refuse(refusal *f, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool refuse_with(refusal *f, int status, const char *code, const char *param, const char *format, ...) __attribute__((format(printf, 5, 6)));
void api_refuse(api *a, http_request *r, api_style style, refusal *f);
/* The same as a JSON object, for streams that fail on the way. */
json_t *api_error_json(api_style style, const refusal *f);
int refusal_status(const refusal *f);

/* Counts of this model, or of all when there are several; weights may be NULL. */
loop_stats api_count(api *a, hearth_weights_stats *weights, hearth_kv_stats *kv);
json_t *api_model_json(const api *a, const char *name);
void api_reply(api *a, http_request *r, int status, json_t *json); /* takes json; NULL: no memory */

/* ---- fields ---- */

typedef enum field_kind { FIELD_BOOL, FIELD_INT, FIELD_FLOAT, FIELD_TEXT, FIELD_JSON, FIELD_MEANINGLESS, FIELD_REFUSED } field_kind;
/* The target has the kind's type: bool, int64_t, float, const char *, const json_t *. Absent and null leave it alone. FIELD_MEANINGLESS is for labels that cannot
 * change an answer. A table ends with a NULL name. */
typedef struct field {
    const char *name;
    field_kind kind;
    void *target;
    double min, max; /* for numbers, checked when min < max */
    const char *why; /* FIELD_REFUSED: what to do instead */
} field;
bool fields_read(const json_t *object, const field *table, const field *more, refusal *f);
/* The body as an object the caller frees; NULL when refused. */
json_t *api_body(const http_request *r, refusal *f);

/* ---- text ---- */

/* A JSON string of any bytes: what is no UTF-8 becomes U+FFFD. */
json_t *text_json(const char *text, size_t len);
typedef struct token_run {
    int32_t *ids;
    size_t n;
    const agent_record *known; /* set by who asks for a rendered prompt: where it goes on from, or NULL */
    const char *begun; /* set by who asks for a rendered prompt: what there is of the answer already, or NULL */
    bool in_thought; /* of a rendered prompt: the answer begins inside a thought */
} token_run;
bool text_tokenize(const api *a, const char *text, size_t len, unsigned flags, token_run *out, refusal *f);
/* Renders the template with these variables and makes tokens of it. An answer that must have a shape is not thought about: a thought that the template opened is
 * closed again. */
bool text_render(const api *a, const json_t *variables, bool shaped, token_run *out, refusal *f);
bool model_is_known(const api *a, const char *name, refusal *f);

/* ---- generating ---- */

enum { MOST_STOPS = 16, MOST_BIAS = 1024 };

/* The sampling fields that the APIs share. */
typedef struct sampling {
    loop_request request; /* tokens are the caller's to set */
    const json_t *stop, *logit_bias, *response_format, *json_schema;
    const char *gbnf, *regex, *stop_name; /* stop_name: as the API calls it */
    hearth_grammar *grammar; /* owned; NULL: any answer */
    int64_t n, max_tokens, seed, top_k, priority;
    float limit_s;
    bool ignore_eos;
    const char *user, *session;
    const char *agent;    /* its name, or NULL */
    bool agent_only_asked; /* by the field 'user', which is no promise: the agent is left out when it cannot be had */
    agent_turn *turn;     /* owned; NULL: none */
    field table[32];      /* the fields of hearth itself and those all share, for fields_read */
    const char *stops[MOST_STOPS + 1];
    hearth_logit_bias bias[MOST_BIAS];
} sampling;
void sampling_init(sampling *s, const api *a);
void sampling_free(sampling *s);
/* After the fields are read. */
bool sampling_finish(sampling *s, api *a, const http_request *r, refusal *f);
/* One ticket for this prompt. */
loop_ticket *sampling_submit(sampling *s, const api *a, const token_run *prompt, refusal *f);

/* ---- the agent of a request ---- */

/* Takes the agent that the request names, if any; make: also one that is not there yet. */
bool sampling_take_agent(sampling *s, api *a, const http_request *r, bool make, refusal *f);
/* How an answer is to be read. */
typedef struct answer_form {
    bool in_thought, tools, one_call;
    char calls[80];     /* what the ids of its calls begin with */
    const char *begun;  /* what was there of it before, or NULL */
} answer_form;
/* What is kept with it: these messages and the answer, cut up as the client sees it. */
bool sampling_keep(sampling *s, const api *a, const json_t *messages, const answer_form *form, refusal *f);
/* The messages kept with the agent, new; an empty array when there are none. NULL when refused. */
json_t *agent_messages(const agent_record *record, refusal *f);
/* Those as the model wrote them, to be rendered; and as clients see them. New references; NULL: no memory. */
json_t *messages_written(const json_t *messages);
json_t *messages_shown(const json_t *messages);
/* After the last piece: whether the answer's turn is on disk, waiting at most timeout_ns. */
bool sampling_saved(sampling *s, http_request *r, uint64_t timeout_ns);
/* Waits for that as long as the client does. */
void sampling_settle(sampling *s, http_request *r);

/* What the answer must look like: the fields response_format, json_schema, grammar and regex; or a call of one of the tools, or of the named one. */
void shape_open(api *a);
void shape_close(api *a);
bool shape_fields(api *a, sampling *s, refusal *f);
bool shape_grammar(api *a, sampling *s, hearth_grammar_kind kind, const char *text, size_t len, const char *param, refusal *f);
bool shape_schema(api *a, sampling *s, const json_t *schema, const char *param, refusal *f);
bool shape_call(api *a, sampling *s, const json_t *tools, const char *name, refusal *f);
/* Templates that know no tools get them as text: new messages, or NULL. */
bool template_has_tools(const api *a);
json_t *tools_as_text(const json_t *messages, const json_t *tools, refusal *f);

/* How often a waiting handler looks whether its client is still there. */
#define API_LOOK_NS 100000000u

void refuse_ticket(refusal *f, const err *e);
void note_usage(http_request *r, const loop_usage *u);

/* Text of one answer as it comes, gathered. */
typedef struct gathered {
    buf text;
    json_t *logprobs; /* array or NULL */
    loop_finish finish;
    const char *stop;
} gathered;
/* Waits for the whole ticket. False: refused in f, or the client left (f is empty). each may be NULL. */
typedef json_t *logprob_json(const api *a, const loop_token *t, int n_top);
bool gather(const api *a, http_request *r, loop_ticket *t, int n, logprob_json *each, int n_top, gathered *out, refusal *f);
void gathered_free(gathered *g, int n);

/* Server-sent events. */
bool event_data(buf *out, const char *event, json_t *json); /* takes json; event may be NULL */

json_t *openai_usage(const loop_usage *u);
json_t *timings_json(const loop_usage *u);
/* The last event of a stream whose request failed: the error in the API's shape. */
void stream_failed(buf *out, http_request *r, api_style style, const err *e);
json_t *openai_logprob(const api *a, const loop_token *t, int n_top);

/* ---- messages and tools ---- */

/* OpenAI's messages as templates want them: text content in one string, arguments as objects. New reference, or NULL when refused. */
json_t *messages_from_openai(const json_t *messages, refusal *f);

/* Anthropic's messages and system text, and its tools in OpenAI's form. */
json_t *messages_from_anthropic(const json_t *messages, const json_t *system, refusal *f);
json_t *tools_from_anthropic(const json_t *tools, refusal *f);
bool cache_control_is_fine(const json_t *v, const char *where, refusal *f);
/* How many messages there are up to the last one with a cache_control; *head: the system text or the tools have one. */
size_t cache_control_messages(const json_t *messages, const json_t *system, const json_t *tools, bool *head, refusal *f);

/* What a model writes, cut into text and tool calls while it comes. */
typedef struct tool_parser tool_parser;
/* A call comes as TOOL_CALL with its name, its arguments in pieces of JSON text, and its end. */
typedef enum tool_event_kind { TOOL_THOUGHT, TOOL_TEXT, TOOL_CALL, TOOL_ARGUMENTS, TOOL_CALL_END } tool_event_kind;
typedef struct tool_event {
    tool_event_kind kind;
    const char *text; /* TOOL_THOUGHT, TOOL_TEXT, TOOL_ARGUMENTS; NUL-terminated */
    size_t len;
    int index;        /* of the call: the how manieth */
    const char *name; /* TOOL_CALL */
} tool_event;
/* Called for every event; false is out of memory. */
typedef bool tool_sink(void *user, const tool_event *event);
tool_parser *tool_parser_new(bool bare_json, err *e);
void tool_parser_free(tool_parser *p);
bool tool_parser_add(tool_parser *p, const char *text, size_t len, tool_sink *sink, void *user, err *e);
bool tool_parser_end(tool_parser *p, tool_sink *sink, void *user, err *e);
int tool_parser_calls(const tool_parser *p);

/* How a model marks its thoughts; NULL: it has none, as far as its template tells. */
const thinking *thinking_find(const char *template);
/* The control tokens among the markers, which must be asked for to be seen; returns how many. */
int thinking_tokens(const thinking *k, const hearth_engine *engine, int32_t *out, int cap);
/* How thoughts are recognised and ended by their tokens; n_close is 0 when they cannot be. */
loop_thoughts thinking_bound(const thinking *k, const hearth_engine *engine);
/* Whether a prompt ends inside a thought; and what would end it. */
bool thinking_is_open(const thinking *k, const char *prompt, size_t len);
const char *thinking_close(const thinking *k);

/* What a model writes, cut into thoughts, text and tool calls while it comes; told like a tool_parser's. */
typedef struct answer answer;
answer *answer_new(const thinking *kind, bool in_thought, bool tools, err *e);
void answer_free(answer *a);
bool answer_add(answer *a, const char *text, size_t len, tool_sink *sink, void *user, err *e);
bool answer_end(answer *a, tool_sink *sink, void *user, err *e);
int answer_calls(const answer *a);
/* How many tokens its thoughts take; 0 for NULL. */
int answer_thought_tokens(const answer *a, const hearth_engine *engine);
/* A call in the chat API's form; calls: what the ids of an answer's calls begin with. */
json_t *call_json(const char *calls, int index, const char *name, const char *arguments);
/* All of an answer as a message of the chat API: text, thoughts and calls apart. one_call: further ones are dropped. */
json_t *answer_message(answer *a, const char *text, size_t len, const char *calls, bool one_call, err *e);

/* What a request wants of thoughts: the template's variables for it. effort is OpenAI's word or NULL; wish: -1 as the template likes, 0 none, 1 some. False when the model
 * cannot do it. */
bool thinking_variables(const api *a, json_t *variables, const char *effort, int wish);

/* ---- responses ---- */

/* Responses that later requests may go on from: {"response": ..., "input": [items]} by id. For any thread. */
typedef struct response_state response_state;
response_state *response_state_new(const char *folder, err *e); /* NULL: in memory */
void response_state_free(response_state *s);
bool response_state_put(response_state *s, const char *id, const char *tenant, json_t *record, err *e);
/* What belongs to another tenant (NULL: none) is not there. */
json_t *response_state_get(response_state *s, const char *id, const char *tenant); /* new reference, or NULL */
bool response_state_drop(response_state *s, const char *id, const char *tenant);   /* false: there is none */

/* Items as messages of the chat API, and tools in its form. New references, or NULL when refused. */
json_t *messages_from_items(const json_t *items, const char *instructions, refusal *f);
json_t *tools_from_responses(const json_t *tools, refusal *f);

/* From what a model writes to the items of a response, and the events that tell of them. */
typedef struct response_maker {
    const char *id;       /* of the response */
    json_t *output;       /* items that are complete */
    answer *answer;
    bool one_call;        /* further calls are dropped */
    bool cut;             /* the answer ended for want of tokens */
    int call;             /* the how manieth is open */
    buf *out;             /* where events go; NULL: nowhere */
    int sequence;
    /* the item that is open */
    bool is_open;
    tool_event_kind open; /* thoughts, text or a call */
    char item_id[80];
    buf text, name;
    json_t *logprobs, *waiting;
} response_maker;
bool response_maker_open(response_maker *m, const api *a, const char *id, bool in_thought, bool tools, bool one_call, err *e);
void response_maker_close(response_maker *m);
/* n_logprobs: likeliest tokens to tell of; -1: no log-probabilities. False: no memory. */
bool response_maker_add(response_maker *m, const api *a, const loop_piece *p, int n_logprobs);
bool response_event(response_maker *m, const char *type, const json_t *response);

/* ---- routes ---- */

typedef void route(api *a, http_request *r);
/* A chat whose messages go on from the agent's. */
void chat_with_agent(api *a, http_request *r, const char *agent);
route route_agents, route_agent_create, route_agent, route_agent_change, route_agent_delete;
route route_chat, route_completions, route_embeddings, route_messages, route_count_tokens, route_metrics, route_tokenize, route_detokenize, route_apply_template;
route route_responses, route_response_tokens, route_response_show, route_response_delete;

/* ---- several models ---- */

/* Runs a route with the model that the request names, when it is loaded; refuses when there is none of this name. */
void models_run(models *m, http_request *r, route *run, api_style style);
/* Whether name stands for the model of this api. */
bool models_is(models *m, const char *name, const api *a);
/* The model of this name as /v1/models shows it, new; NULL when there is none. NULL for name: all of them. */
json_t *models_json(models *m, const char *name);
/* All models together, those that were unloaded included. */
void models_count(models *m, loop_stats *loops, hearth_weights_stats *weights, hearth_kv_stats *kv);
/* What a route says in place of a reply when its stream has begun already. Takes json. */
void models_last_event(http_request *r, const char *event, json_t *json);
const hearth_engine_options *models_engine(const models *m);
/* The body when it was read already, to take; or NULL. */
json_t *models_body(const http_request *r);

/* False when this is none of an administrator's routes. */
bool admin_handle(api *a, http_request *r);
bool page_serve(http_request *r, const char *path);

#endif
