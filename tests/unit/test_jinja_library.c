/* test_jinja_library.c: filters, tests and methods. The results are those of jinja2 3.1 on Python 3.11. */
#include "jinja_examples.h"

static const example text_filters[] = {
    {"{{ 'abc'|upper }} {{ 'ABC'|lower }} {{ 'hello wORLD-foo (bar'|title }} {{ 'hELLO wORLD'|capitalize }} {{ '  x '|trim "
     "}}| {{ 'xxaxx'|trim('x') }} {{ 'a'|center(5) }}| {{ 'ab'|center(5) }}|",
     NULL,
     "ABC abc Hello World-Foo (Bar Hello world x| a   a  |   ab |"},
    {"{{ 'aXbXc'|replace('X', '-') }} {{ 'aXbXc'|replace('X', '-', 1) }} {{ 'abc'|replace('', '-') }} {{ 11|replace(1,2) }}",
     NULL,
     "a-b-c a-bXc -a-b-c- 22"},
    {"{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(1, blank=true) }}|{{ 'a\nb\n'|indent(width='>>') "
     "}}|{{ ''|indent }}|{{ 'a\n'|indent }}|",
     NULL,
     "a\n    b\n\n    c|  a\n  b|a\n \n b|a\n>>b\n||a\n|"},
    {"{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ "
     "'foo bar baz qux'|truncate(11, false, '..', 0) }}",
     NULL,
     "foo... foo ba... foo bar baz qux foo bar.."},
    {"{{ 'a b  c_d, e-f'|wordcount }}", NULL, "5"},
    {"{{ \"<a href='x'>\\\"&amp;\"|escape }} {{ \"<b>\"|e }} {{ \"<b>\"|safe }} {{ \"<b>\"|safe|e }} {{ (\"<b>\"|safe) + \"<i>\" "
     "}} {{ \"<i>\" + (\"<b>\"|safe) }} {{ (\"<b>\"|safe) ~ \"<i>\" }} {{ \"<b>\"|e|forceescape }}",
     NULL,
     "&lt;a href=&#39;x&#39;&gt;&#34;&amp;amp; &lt;b&gt; <b> <b> <b>&lt;i&gt; &lt;i&gt;<b> <b><i> &amp;lt;b&amp;gt;"},
    {"{{ ('<b>'|safe).upper() + '<' }} {{ (('<b>'|safe)|upper) + '<' }} {{ ['<b>'|safe] }} {{ ('<b>'|safe) == '<b>' }} {{ ('<b> "
     "x'|safe).split()[1] + '<' }} {{ ('%s'|safe) % '<' }} {{ ('{}'|safe).format('<') }} {{ ('<'|safe).join(['<','a']) }} {{ "
     "('<'|safe)[0] + '<' }} {{ ('<'|safe) * 2 + '<' }}",
     NULL,
     "<B>&lt; <B>&lt; [Markup('<b>')] True x&lt; &lt; &lt; &lt;<a <&lt; <<&lt;"},
    {"{{ 'a b&c/ü?'|urlencode }} {{ {'a b': 1, 'c': 'd&e'}|urlencode }} {{ [['x','y z']]|urlencode }}",
     NULL,
     "a%20b%26c/%C3%BC%3F a+b=1&c=d%26e x=y+z"},
    {"{{ '<p>Hello  <b>x</b></p>\n y <!-- c --> z'|striptags }}", NULL, "Hello x y z"},
    {"{{ {'a': 1, 'b': none, 'c': '<'}|xmlattr }}", NULL, " a=\"1\" c=\"&lt;\""},
    {"{{ 1|string + 'x' }} {{ none|string }} {{ [1]|string }}", NULL, "1x None [1]"},
    {"{{ '%s-%s'|format(1, 'b') }} {{ '%(x)s'|format(x=1) }}", NULL, "1-b 1"},
    {"{{ 1|filesizeformat }} {{ 500|filesizeformat }} {{ 13000|filesizeformat }} {{ 4100000|filesizeformat }} {{ 4100000|filesizef"
     "ormat(true) }} {{ '1500'|filesizeformat }} {{ 2048|filesizeformat(true) }}",
     NULL,
     "1 Byte 500 Bytes 13.0 kB 4.1 MB 3.9 MiB 1.5 kB 2.0 KiB"},
    {"{{ 'aaa bbb ccc ddd'|wordwrap(7) }}|{{ 'aaaaaaaaaa b'|wordwrap(4) }}|{{ 'aaaaaaaaaa b'|wordwrap(4, false) }}|{{ 'a b\nc "
     "d'|wordwrap(3, wrapstring='/') }}",
     NULL,
     "aaa bbb\nccc ddd|aaaa\naaaa\naa b|aaaaaaaaaa\nb|a b/c d"},
    {"{{ undefinedname|upper }}|{{ undefinedname|trim }}|{{ none|upper }}|{{ 5|upper }}|{{ undefinedname|length }}", NULL, "||NONE|5|0"},
    {"{{ 'ß straße'|upper }} {{ 'ÀÉ'|lower }} {{ 'ΑΣ ΣΑΣ'|lower }} {{ 'éa'|capitalize }} {{ 'ﬁx'|upper }} {{ 'ǆ'|title }} {{ "
     "'İ'|lower }}",
     NULL,
     "SS STRASSE àé ας σας Éa FIX Ǆ i̇"},
    {"{{ 5|trim }} {{ 'x'|replace('x', 5) }}", NULL, "5 5"},
    {"{{ 'a'|replace(old='a', new='b') }}", NULL, "b"},
    {"{{ 'a'|center(width=3) }}|", NULL, " a |"},
    {"{{ '{}'|format }}", NULL, "{}"},
    {"{{ 'x'|default('y') }} {{ u|default('y') }} {{ ''|default('y', true) }} {{ none|default('y') }} {{ none|d('y', boolean=true)"
     " }} {{ u|d }}|",
     NULL,
     "x y y None y |"},
    {0},
};
EXAMPLES_TEST(text_filters, false)

static const example tojson_filter[] = {
    {"{{ v|tojson }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\"b\": [1, 2.5, {\"x\": null}], \"a\": \"é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>\", \"c\": {}, \"d\": [], "
     "\"e\": true}"},
    {"{{ v|tojson(indent=2) }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\n  \"b\": [\n    1,\n    2.5,\n    {\n      \"x\": null\n    }\n  ],\n  \"a\": \"é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</"
     "script>\",\n  \"c\": {},\n  \"d\": [],\n  \"e\": true\n}"},
    {"{{ v|tojson(separators=(',', ':')) }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\"b\":[1,2.5,{\"x\":null}],\"a\":\"é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>\",\"c\":{},\"d\":[],\"e\":true}"},
    {"{{ v|tojson(sort_keys=true) }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\"a\": \"é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>\", \"b\": [1, 2.5, {\"x\": null}], \"c\": {}, \"d\": [], "
     "\"e\": true}"},
    {"{{ v|tojson(ensure_ascii=true) }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\"b\": [1, 2.5, {\"x\": null}], \"a\": \"\\u00e9\\\"\\\\\\n\\t\\u0001\\u007f\\u2028\\ud83d\\ude00</script>\", \"c\": "
     "{}, \"d\": [], \"e\": true}"},
    {"{{ v|tojson(indent=0) }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\n\"b\": [\n1,\n2.5,\n{\n\"x\": null\n}\n],\n\"a\": \"é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>\",\n\"c\": {},\n\"d\""
     ": [],\n\"e\": true\n}"},
    {"{{ v|tojson(indent='--', sort_keys=true, ensure_ascii=true) }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "{\n--\"a\": \"\\u00e9\\\"\\\\\\n\\t\\u0001\\u007f\\u2028\\ud83d\\ude00</script>\",\n--\"b\": [\n----1,\n----2.5,\n----{\n---"
     "---\"x\": null\n----}\n--],\n--\"c\": {},\n--\"d\": [],\n--\"e\": true\n}"},
    {"{{ [1.0, 1e16, 1e-5, 9007199254740993, true, none, (1,2)]|tojson }}",
     NULL,
     "[1.0, 1e+16, 1e-05, 9007199254740993, true, null, [1, 2]]"},
    {"{{ {1: 2, 1.5: 3, none: 4, true: 5}|tojson }}", NULL, "{\"1\": 5, \"1.5\": 3, \"null\": 4}"},
    {"{{ 'x'|tojson }} {{ none|tojson }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ [[],{}]|tojson(indent=2) }}",
     NULL,
     "\"x\" null [] {} [\n  [],\n  {}\n]"},
    {"{{ ('<'|safe)|tojson }}", NULL, "\"<\""},
    {"{{ {'b':1,'a':{'d':1,'c':2}}|tojson(sort_keys=true, indent=1) }}",
     NULL,
     "{\n \"a\": {\n  \"c\": 2,\n  \"d\": 1\n },\n \"b\": 1\n}"},
    {"{{ [1]|tojson(4) }}", NULL, "[1]"},
    {"{{ v|tojson|length }}",
     "{'v': {'b': [1, 2.5, {'x': null}], 'a': 'é\\\"\\\\\\n\\t\\u0001\177\342\200\250😀</script>', 'c': {}, 'd': [], 'e': true}}",
     "93"},
    {"{{ [1,2]|tojson(separators=[';', '='], indent=1) }}", NULL, "[\n 1;\n 2\n]"},
    {0},
};
EXAMPLES_TEST(tojson_filter, false)

static const example list_filters[] = {
    {"{{ [3,1,2]|sort }} {{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ [3,1,2]|sort(reverse=true) "
     "}} {{ l|sort(attribute='n')|map(attribute='s')|join }} {{ l|sort(attribute='k,n')|map(attribute='s')|join }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] qpr prq"},
    {"{{ [1,2,1,3]|unique|list }} {{ ['a','A','b']|unique|list }} {{ ['a','A']|unique(true)|list }} {{ l|unique(attribute='k')|map"
     "(attribute='n')|list }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "[1, 2, 3] ['a', 'b'] ['a', 'A'] [2, 1]"},
    {"{{ [1,2,3]|sum }} {{ l|sum(attribute='n') }} {{ [1.5,2]|sum }} {{ [[1],[2]]|sum(start=[]) }} {{ []|sum }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "6 6 3.5 [1, 2] 0"},
    {"{{ [1,3,2]|max }} {{ [1,3,2]|min }} {{ ['a','B']|max }} {{ l|max(attribute='n') }} {{ []|max }}|",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "3 1 B {'n': 3, 's': 'r', 'k': 'x'} |"},
    {"{{ [1,2]|first }} {{ [1,2]|last }} {{ []|first }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ {'a':1}|first }} {{ {'a':1,'b':2}|l"
     "ast }} {{ range(3)|last }}",
     NULL,
     "1 2 | a c a b 2"},
    {"{{ [1,2]|length }} {{ 'abc'|count }} {{ {'a':1}|length }} {{ (1,2)|count }}", NULL, "2 3 1 2"},
    {"{{ 'abc'|list }} {{ {'a':1}|list }} {{ range(3)|list }} {{ (1,2)|list }}", NULL, "['a', 'b', 'c'] ['a'] [0, 1, 2] [1, 2]"},
    {"{{ [1,2,3]|reverse|list }} {{ 'abc'|reverse }} {{ {'a':1,'b':2}|reverse|list }}", NULL, "[3, 2, 1] cba ['b', 'a']"},
    {"{{ [1,'a',none]|join(',') }} {{ [1,2]|join }} {{ l|join('-', attribute='s') }} {{ 'abc'|join('-') }} {{ {'a':1,'b':2}|join('"
     ",') }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "1,a,None 12 p-q-r a-b-c a,b"},
    {"{{ ['a','b']|map('upper')|list }} {{ l|map(attribute='s')|list }} {{ l|map(attribute='zz', default='?')|list }} {{ ['a']|map"
     "('replace','a','b')|list }} {{ [[1,2]]|map('first')|list }} {{ [{'a':{'b':3}}]|map(attribute='a.b')|list }} {{ [[1,2]]|map(a"
     "ttribute=1)|list }} {{ [[1,2]]|map(attribute='0')|list }} {{ ['1']|map('int')|sum }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "['A', 'B'] ['p', 'q', 'r'] ['?', '?', '?'] ['b'] [1] [3] [2] [1] 1"},
    {"{{ [0,1,2,none,'x','']|select|list }} {{ [1,2,3]|select('odd')|list }} {{ [1,2,3]|reject('odd')|list }} {{ [1,2,3]|select('g"
     "t', 1)|list }} {{ [1,2,3]|select('>', 1)|list }} {{ [0,1]|reject|list }} {{ [1,2,3]|select('in', [1,3])|list }}",
     NULL,
     "[1, 2, 'x'] [1, 3] [2] [2, 3] [2, 3] [0] [1, 3]"},
    {"{{ l|selectattr('k')|map(attribute='s')|list }} {{ l|selectattr('n','gt',1)|map(attribute='s')|list }} {{ l|rejectattr('n','"
     "eq',2)|map(attribute='s')|list }} {{ l|selectattr('zz','defined')|list }} {{ l|selectattr('k','equalto','x')|list|length "
     "}} {{ l|rejectattr('zz')|list|length }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "['p', 'q', 'r'] ['p', 'r'] ['q', 'r'] [] 2 3"},
    {"{{ {'b':1,'a':2}|dictsort }} {{ {'b':1,'a':2}|dictsort(by='value') }} {{ {'b':1,'A':2}|dictsort(true) }} {{ {'b':1,'a':2}|di"
     "ctsort(reverse=true) }} {{ {'b':1,'A':2}|dictsort }}",
     NULL,
     "[('a', 2), ('b', 1)] [('b', 1), ('a', 2)] [('A', 2), ('b', 1)] [('b', 1), ('a', 2)] [('A', 2), ('b', 1)]"},
    {"{{ {'a':1,'b':2}|items|list }} {{ undefinedname|items|list }}", NULL, "[('a', 1), ('b', 2)] []"},
    {"{% for g in l|groupby('k') %}{{ g.grouper }}:{{ g.list|map(attribute='s')|join }} {% endfor %}{% for k, v in l|groupby('k') "
     "%}{{ k }}{{ v|length }}{% endfor %}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "x:pr y:q x2y1"},
    {"{{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2, 'x')|list }} {{ [1,2,3,4,5]|slice(2)|list }} {{ [1,2,3,4,5]|slice(3, "
     "'x')|list }}",
     NULL,
     "[[1, 2], [3, 4], [5]] [[1, 2], [3, 'x']] [[1, 2, 3], [4, 5]] [[1, 2], [3, 4], [5, 'x']]"},
    {"{{ l|map(attribute='n')|sort|last }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "3"},
    {"{{ undefinedname|list }} {{ undefinedname|join }}| {{ undefinedname|map('upper')|list }} {{ undefinedname|selectattr('x')|li"
     "st }} {{ undefinedname|sort }}",
     NULL,
     "[] | [] [] []"},
    {"{{ [true,1,0,2]|sort }}", NULL, "[0, True, 1, 2]"},
    {"{{ [[2,'a'],[1,'b']]|sort }} {{ [(1,'b'),(1,'a')]|sort }}", NULL, "[[1, 'b'], [2, 'a']] [(1, 'a'), (1, 'b')]"},
    {"{{ ['b','a']|sort|first }} {{ {'x':1}|length }}", NULL, "a 1"},
    {"{{ l|groupby('zz', default='none')|length }}",
     "{'l': [{'n': 2, 's': 'p', 'k': 'x'}, {'n': 1, 's': 'q', 'k': 'y'}, {'n': 3, 's': 'r', 'k': 'x'}]}",
     "1"},
    {"{{ [{'a':1},{'a':2}]|map('attr','a')|list }}", NULL, "[Undefined, Undefined]"},
    {"{{ ['a','b']|map('upper')|join(', ') }}", NULL, "A, B"},
    {0},
};
EXAMPLES_TEST(list_filters, false)

static const example number_filters[] = {
    {"{{ '5'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 5.9|int }} {{ -5.9|int }} {{ '5.7'|int }} {{ '0x1f'|int(base=16) }} {{ "
     "'ff'|int(0, 16) }} {{ ' 12 '|int }} {{ true|int }} {{ none|int }} {{ '1_000'|int }} {{ '-3'|int }} {{ []|int }}",
     NULL,
     "5 0 7 5 -5 5 31 255 12 1 0 1000 -3 0"},
    {"{{ '5.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 5|float }} {{ '1e3'|float }} {{ none|float }} {{ 'inf'|float "
     "}} {{ 'nan'|float }} {{ ' 2 '|float }} {{ '0x10'|float }} {{ '1_0.5'|float }}",
     NULL,
     "5.5 0.0 1.5 5.0 1000.0 0.0 inf nan 2.0 0.0 10.5"},
    {"{{ -5|abs }} {{ -5.5|abs }} {{ 42.55|round }} {{ 42.55|round(1) }} {{ 42.45|round(1,'floor') }} {{ 42.41|round(1,'ceil') "
     "}} {{ 42|round }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 42.55|round|int }} {{ "
     "1250|round(-2) }} {{ 1234.5|round(-2) }}",
     NULL,
     "5 5.5 43.0 42.5 42.4 42.5 42 2.0 4.0 2.67 1200 43 1200 1200.0"},
    {0},
};
EXAMPLES_TEST(number_filters, false)

static const example tests_after_is[] = {
    {"{{ x is defined }} {{ u is defined }} {{ u is undefined }} {{ none is none }} {{ x is none }} {{ 'a' is string }} {{ "
     "1 is string }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }} {{ 1 is integer }} {{ true "
     "is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ 1 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ true "
     "is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }}",
     "{'x': 5}",
     "True False True True False True False True True True False True False False True False True False True False True False"},
    {"{{ {} is mapping }} {{ [] is mapping }} {{ [] is sequence }} {{ '' is sequence }} {{ {} is sequence }} {{ 1 is sequence "
     "}} {{ u is sequence }} {{ [] is iterable }} {{ 1 is iterable }} {{ '' is iterable }} {{ {} is iterable }} {{ u is iterable "
     "}} {{ none is iterable }} {{ range(3) is sequence }} {{ {}.items() is sequence }} {{ {}.items() is iterable }} {{ (1,) "
     "is sequence }} {{ namespace() is mapping }}",
     NULL,
     "True False True True True False True True False True True True False True False True True False"},
    {"{{ range is callable }} {{ ''.upper is callable }} {{ 1 is callable }} {{ u is callable }}", NULL, "True True False True"},
    {"{{ 1 is odd }} {{ 2 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 'a' is lower }} {{ 'A' is upper "
     "}} {{ 'Aa' is lower }} {{ '1' is lower }} {{ 1 is sameas 1 }} {{ x is sameas x }} {{ none is sameas none }} {{ true is "
     "sameas 1 }}",
     "{'x': 5}",
     "True True True False True True False False True True True False"},
    {"{{ 1 is eq 1 }} {{ 1 is ne 1 }} {{ 1 is lt 2 }} {{ 1 is le 1 }} {{ 1 is gt 0 }} {{ 1 is ge 2 }} {{ 1 is equalto 1 }} "
     "{{ 1 is in [1] }} {{ 1 is not in [1] }} {{ 1 is greaterthan 0 }} {{ 1 is lessthan 0 }} {{ 'a' is in 'abc' }}",
     NULL,
     "True False True True True False True True False True False True"},
    {"{{ 'upper' is filter }} {{ 'nosuch' is filter }} {{ 'odd' is test }} {{ 'nosuch' is test }} {{ ('a'|safe) is escaped "
     "}} {{ 'a' is escaped }}",
     NULL,
     "True False True False True False"},
    {"{{ 1 is not odd }} {{ not 1 is odd }} {{ x is defined and x is number }}", "{'x': 5}", "False False True"},
    {"{{ 1 is string or 1 is number }}", NULL, "True"},
    {"{{ x is not none and x != '' }}", "{'x': 5}", "True"},
    {0},
};
EXAMPLES_TEST(tests_after_is, false)

static const example str_methods[] = {
    {"{{ '  a '.strip() }}|{{ 'xax'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'abcba'.strip('ab') }}|{{ 'a\n'.rst"
     "rip('\n') }}|{{ ' a '.strip(none) }}|",
     NULL,
     "a|a|a | a|c|a|a|"},
    {"{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rspli"
     "t(',', 1) }} {{ ' a  b c '.rsplit() }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split("
     "'x') }} {{ 'a,b'.split(sep=',', maxsplit=0) }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'aXXbXX'.sp"
     "lit('XX') }}",
     NULL,
     "['a', 'b', 'c'] ['a', 'b,c'] ['a', 'b'] ['a', 'b c '] ['a,b', 'c'] ['a', 'b', 'c'] [' a  b', 'c'] [] [''] ['abc'] ['a,b'] "
     "['a', 'b', 'c'] ['a\\n', 'b'] ['a', 'b', '']"},
    {"{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x','c')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, "
     "2) }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith('', 5) }}",
     NULL,
     "True True True True True False"},
    {"{{ 'aXbX'.replace('X','-') }} {{ 'aXbX'.replace('X','-',1) }} {{ 'abc'.replace('', '-', 2) }} {{ 'aaa'.replace('aa','b') "
     "}}",
     NULL,
     "a-b- a-bX -a-bc ba"},
    {"{{ \"aB\".upper() }} {{ \"aB\".lower() }} {{ \"they're bill's\".title() }} {{ \"hELLO\".capitalize() }} {{ \"aBc\".swapcase("
     ") }} {{ \"Straße\".casefold() }} {{ \"a1b\".title() }}",
     NULL,
     "AB ab They'Re Bill'S Hello AbC strasse A1B"},
    {"{{ ','.join(['a','b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ ','.join({'a':1,'b':2}) }}", NULL, "a,b  a-b-c a,b"},
    {"{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('x') }} {{ 'hello'.index('e') }} {{ 'hello'.rindex('l') "
     "}} {{ 'hello'.count('l') }} {{ 'aaa'.count('aa') }} {{ 'héllo'.find('l') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.find('l', "
     "-2) }} {{ 'abc'.count('') }} {{ 'abc'.rfind('') }} {{ 'abc'.find('',9) }} {{ 'hello'.find('lo', 0, 4) }}",
     NULL,
     "2 3 -1 1 3 2 1 2 3 3 4 3 -1 -1"},
    {"{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() "
     "}} {{ '½'.isnumeric() }} {{ ' \t'.isspace() }} {{ 'aB'.islower() }} {{ 'ab'.islower() }} {{ 'AB1'.isupper() }} {{ 'Ab "
     "Cd'.istitle() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'é'.isascii() }} {{ 'a\n'.isprintable() }} {{ "
     "'日本'.isalpha() }} {{ ''.isprintable() }} {{ ''.isascii() }}",
     NULL,
     "True True True False True False True True False True True True True False False False True True True"},
    {"{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('') }}", NULL, "x x x"},
    {"{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3,'*') }}|{{ 'a'.center(4,'*') }}|{{ 'ab'.center(5,'*') }}|{{ 'abc'.center(6,'*') }}|{{ "
     "'5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'a\tb'.expandtabs(4) }} {{ 'ab\tc\n\td'.expandtabs() }}",
     NULL,
     "a  |**a|*a**|**ab*|*abc**|005 -005 a   b ab      c\n        d"},
    {"{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}",
     NULL,
     "('a', '=', 'b=c') ('a=b', '=', 'c') ('abc', '', '') ('', '', 'abc')"},
    {"{{ '{} {}'.format(1, 'a') }} {{ '{0} {1} {0}'.format(1, 2) }} {{ '{a}-{b}'.format(a=1, b=2) }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}|"
     "'.format('a','b','c','d') }} {{ '{:.2f} {:,} {:05d} {:x} {:#x} {:b} {:e} {:%} {:+d} {:g}'.format(3.14159, 1234567, 42, "
     "255, 255, 5, 12345.678, 0.25, 5, 0.00001) }} {{ '{{}} {!r}'.format('x') }} {{ '{0[a]} {0[b][0]}'.format({'a':1,'b':[2]}) "
     "}} {{ '{:{}}|'.format('a', 5) }} {{ '{:5}|{:5}|{:5.1f}|{:<5}|'.format(1, 'a', 2.25, true) }} {{ '{:.3}'.format('abcdef') "
     "}} {{ '{}'.format(none) }} {{ '{:,.2f}'.format(1234567.891) }} {{ '{:_}'.format(1000000) }} {{ '{:08.3f}'.format(-3.14159) "
     "}} {{ '{:=+6d}'.format(42) }} {{ '{:é>4}'.format('x') }} {{ '{:.3g}'.format(1234.5) }} {{ '{:10.3}|'.format(1.23456) "
     "}} {{ '{:c}'.format(65) }} {{ '{!s:>4}'.format(5) }}",
     NULL,
     "1 a 1 2 1 1-2     a|b    |  c  |***d***| 3.14 1,234,567 00042 ff 0xff 101 1.234568e+04 25.000000% +5 1e-05 {} 'x' 1 2 "
     "a    |     1|a    |  2.2|1    | abc None 1,234,567.89 1_000_000 -003.142 +   42 éééx 1.23e+03       1.23| A    5"},
    {"{{ 'é'.upper() }} {{ '日本 x'.split() }} {{ 'a\342\200\250b'.splitlines() }} {{ '\302\240a\343\200\200'.strip() }}",
     NULL,
     "É ['日本', 'x'] ['a', 'b'] a"},
    {"{{ '{}{}'.format('a', 'b') ~ 'x' }}", NULL, "abx"},
    {"{{ '%s' % none }} {{ '%s' % true }} {{ '%d' % 3.7 }} {{ '%5.1f%%' % 45.678 }} {{ '%*d' % (5, 3) }} {{ '%.2s' % 'abc' "
     "}} {{ '%i' % true }}",
     NULL,
     "None True 3  45.7%     3 ab 1"},
    {"{{ 'abc' % () }}", NULL, "abc"},
    {0},
};
EXAMPLES_TEST(str_methods, false)

static const example list_and_dict_methods[] = {
    {"{{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d.get('z', default=5) if false }}{{ d.keys()|list }} {{ d.values()|"
     "list }} {{ d.items()|list }}",
     "{'d': {'a': 1, 'b': 2}}",
     "1 None 5 ['a', 'b'] [1, 2] [('a', 1), ('b', 2)]"},
    {"{{ l.index(2) }} {{ l.count(1) }} {{ (1,2,2).count(2) }} {{ (1,2).index(2) }} {{ l.copy() }} {{ d.copy() }}",
     "{'l': [1, 2, 3], 'd': {'a': 1, 'b': 2}}",
     "1 1 2 1 [1, 2, 3] {'a': 1, 'b': 2}"},
    {"{% set _ = l.append(9) %}{{ l }} {{ l.pop() }} {{ l.pop(0) }} {{ l }} {% do l.extend([7,8]) %}{{ l }} {% do l.insert(0, "
     "5) %}{{ l }} {% do l.insert(-1, 6) %}{{ l }} {% do l.remove(7) %}{{ l }} {% do l.reverse() %}{{ l }} {% do l.sort() %}{{ "
     "l }} {% do l.sort(reverse=true) %}{{ l }} {% do l.clear() %}{{ l }}",
     "{'l': [1, 2, 3]}",
     "[1, 2, 3, 9] 9 1 [2, 3] [2, 3, 7, 8] [5, 2, 3, 7, 8] [5, 2, 3, 7, 6, 8] [5, 2, 3, 6, 8] [8, 6, 3, 2, 5] [2, 3, 5, 6, "
     "8] [8, 6, 5, 3, 2] []"},
    {"{% do d.update({'c':3}) %}{{ d }} {% do d.update(e=4) %}{{ d }} {{ d.pop('a') }} {{ d.pop('zz', 1) }} {{ d }} {{ d.setdefaul"
     "t('q', 1) }} {{ d.setdefault('b') }} {{ d }} {{ d.popitem() }} {{ d }} {% do d.clear() %}{{ d }}",
     "{'d': {'a': 1, 'b': 2}}",
     "{'a': 1, 'b': 2, 'c': 3} {'a': 1, 'b': 2, 'c': 3, 'e': 4} 1 1 {'b': 2, 'c': 3, 'e': 4} 1 2 {'b': 2, 'c': 3, 'e': 4, 'q': "
     "1} ('q', 1) {'b': 2, 'c': 3, 'e': 4} {}"},
    {"{{ dict(a=1, b=2) }} {{ dict([['x', 1]]) }} {{ dict({'a':1}, b=2) }} {{ dict() }}",
     NULL,
     "{'a': 1, 'b': 2} {'x': 1} {'a': 1, 'b': 2} {}"},
    {"{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{% do c.reset() %}{{ c.next() }}",
     NULL,
     "abaaa"},
    {"{% set j = joiner(', ') %}{% for i in [1,2,3] %}{{ j() }}{{ i }}{% endfor %}{% set k = joiner() %}{{ k() }}{{ k() }}",
     NULL,
     "1, 2, 3, "},
    {"{{ strftime_now('%Y-%m-%d %H:%M %A %B %d %b %j') }}", "{'d': {'a': 1, 'b': 2}}", "2026-01-15 00:00 Thursday January 15 Jan 015"},
    {"{{ strftime_now('') }}|", NULL, "|"},
    {"{% if false %}{{ raise_exception('x') }}{% endif %}ok", NULL, "ok"},
    {"{{ d.items() }} {{ d.values() }}", "{'d': {'a': 1, 'b': 2}}", "dict_items([('a', 1), ('b', 2)]) dict_values([1, 2])"},
    {"{{ l == l.copy() }}", "{'l': [1, 2, 3]}", "True"},
    {"{% for i in l %}{{ i }}{% if i < 5 %}{% do l.append(i + 4) %}{% endif %}{% endfor %}", "{'l': [1, 2, 3]}", "123567"},
    {0},
};
EXAMPLES_TEST(list_and_dict_methods, false)

static const example unicode_strings[] = {
    {"{{ s|length }} {{ s[0] }} {{ s[-1] }} {{ s[1:3] }} {{ s|upper }} {{ s|list }} {{ [s] }} {{ s|tojson }} {{ 'é' in s }} "
     "{{ s.find('b') }} {{ s|reverse }} {{ s.split('é') }} {{ s|replace('é','e') }}",
     "{'s': 'aéb😀e\314\201'}",
     "6 a \314\201 éb AÉB😀E\314\201 ['a', 'é', 'b', '😀', 'e', '\314\201'] ['aéb😀e\314\201'] \"aéb😀e\314\201\" True 2 "
     "\314\201e😀béa ['a', 'b😀e\314\201'] aeb😀e\314\201"},
    {0},
};
EXAMPLES_TEST(unicode_strings, false)

static const example text_filters_errors[] = {
    {"{{ 5|indent }}", NULL, "line 1: indent needs a string, not int"},
    {"{{ 'a'|nosuchfilter }}", NULL, "line 1: no filter named 'nosuchfilter'"},
    {"{{ 'a'|upper(1) }}", NULL, "line 1: upper takes at most 0 argument(s), not 1"},
    {"{{ 'a'|replace('a') }}", NULL, "line 1: replace needs 2 argument(s): old new count"},
    {"{{ '%d'|format('x') }}", NULL, "line 1: %d format: a number is required, not str"},
    {"{{ '%s'|format }}", NULL, "line 1: not enough arguments for format string"},
    {0},
};
EXAMPLES_TEST(text_filters_errors, true)

static const example tojson_filter_errors[] = {
    {"{{ undefinedname|tojson }}", NULL, "line 1: Object of type Undefined is not JSON serializable"},
    {"{{ range(3)|tojson }}", NULL, "line 1: Object of type range is not JSON serializable"},
    {"{{ {(1,2): 3}|tojson }}", NULL, "line 1: keys must be str, int, float, bool or None, not tuple"},
    {"{{ {2:1,'a':1}|tojson(sort_keys=true) }}", NULL, "line 1: '<' not supported between instances of 'str' and 'int'"},
    {0},
};
EXAMPLES_TEST(tojson_filter_errors, true)

static const example list_filters_errors[] = {
    {"{{ 5|length }}", NULL, "line 1: object of type 'int' has no len()"},
    {"{{ 5|list }}", NULL, "line 1: 'int' object is not iterable"},
    {"{{ [1,'a']|sort }}", NULL, "line 1: '<' not supported between instances of 'str' and 'int'"},
    {"{{ [1]|map('nosuch')|list }}", NULL, "line 1: no filter named 'nosuch'"},
    {"{{ [1]|select('nosuch')|list }}", NULL, "line 1: no test named 'nosuch'"},
    {"{{ [[1]]|unique|list }}", NULL, "line 1: unhashable type: 'list'"},
    {"{{ ['a']|sum }}", NULL, "line 1: unsupported operand type(s) for +: 'int' and 'str'"},
    {"{{ none|first }}", NULL, "line 1: 'NoneType' object is not iterable"},
    {"{{ 5|join }}", NULL, "line 1: 'int' object is not iterable"},
    {"{{ [1]|batch }}", NULL, "line 1: batch needs 1 argument(s): linecount fill_with"},
    {"{{ {'a':1}|dictsort(by='x') }}", NULL, "line 1: dictsort can only sort by \"key\" or \"value\""},
    {0},
};
EXAMPLES_TEST(list_filters_errors, true)

static const example number_filters_errors[] = {
    {"{{ undefinedname|int }}", NULL, "line 1: 'undefinedname' is undefined"},
    {"{{ 'a'|abs }}", NULL, "line 1: bad operand type for abs(): 'str'"},
    {"{{ 'a'|round }}", NULL, "line 1: round needs a number, not str"},
    {"{{ 1|round(1,'x') }}", NULL, "line 1: the method of round must be common, ceil or floor"},
    {0},
};
EXAMPLES_TEST(number_filters_errors, true)

static const example tests_after_is_errors[] = {
    {"{{ 1 is nosuch }}", NULL, "line 1: no test named 'nosuch'"},
    {"{{ 'a' is odd }}", NULL, "line 1: not all arguments converted during string formatting"},
    {"{{ 1 is divisibleby }}", NULL, "line 1: divisibleby needs 1 argument(s): num"},
    {"{{ 1 is divisibleby 0 }}", NULL, "line 1: division by zero"},
    {"{{ x.y is defined }} {{ x['y'] is defined }} {{ u.y is defined }}", "{'x': 5}", "line 1: 'u' is undefined"},
    {"{{ 2 is odd is even }}", NULL, "line 1: expected one test only: tests cannot be chained with is, found is"},
    {0},
};
EXAMPLES_TEST(tests_after_is_errors, true)

static const example str_methods_errors[] = {
    {"{{ '{} {}'.format(1) }}", NULL, "line 1: the format string has more fields than there are arguments"},
    {"{{ '{a}'.format(b=1) }}", NULL, "line 1: format was not given 'a'"},
    {"{{ '{'.format() }}", NULL, "line 1: expected '}' before end of string"},
    {"{{ '}'.format() }}", NULL, "line 1: Single '}' encountered in format string"},
    {"{{ '{:d}'.format('a') }}", NULL, "line 1: this format does not fit a value of type str"},
    {"{{ '{:z}'.format(1) }}", NULL, "line 1: Invalid format specifier"},
    {"{{ 'a'.index('z') }}", NULL, "line 1: substring not found"},
    {"{{ 'a'.split('') }}", NULL, "line 1: empty separator"},
    {"{{ 'a'.join([1]) }}", NULL, "line 1: sequence item 0: expected str instance, int found"},
    {"{{ 'a'.join(5) }}", NULL, "line 1: 'int' object is not iterable"},
    {"{{ 'a'.nosuch() }}", NULL, "line 1: 'str object' has no attribute 'nosuch'"},
    {"{{ 'a'.upper(1) }}", NULL, "line 1: upper takes at most 0 argument(s), not 1"},
    {"{{ 'a'.startswith(1) }}", NULL, "line 1: startswith first arg must be str or a tuple of str, not int"},
    {"{{ 'a'.replace('a') }}", NULL, "line 1: replace needs 2 argument(s): old new count"},
    {"{{ 'a'.ljust(3, 'ab') }}", NULL, "line 1: the fill character must be exactly one character long"},
    {"{{ none.strip() }}", NULL, "line 1: 'None' has no attribute 'strip'"},
    {"{{ [].strip() }}", NULL, "line 1: 'list object' has no attribute 'strip'"},
    {"{{ '%d' % 'x' }}", NULL, "line 1: %d format: a number is required, not str"},
    {"{{ '%s %s' % 'a' }}", NULL, "line 1: not enough arguments for format string"},
    {"{{ '%s' % ('a', 'b') }}", NULL, "line 1: not all arguments converted during string formatting"},
    {"{{ '%q' % 1 }}", NULL, "line 1: unsupported format character"},
    {"{{ '%(a)s' % 5 }}", NULL, "line 1: format requires a mapping"},
    {"{{ '%(a)s' % {} }}", NULL, "line 1: the format names a key that is not there"},
    {"{{ 'a%' % 1 }}", NULL, "line 1: incomplete format"},
    {0},
};
EXAMPLES_TEST(str_methods_errors, true)

static const example list_and_dict_methods_errors[] = {
    {"{{ l.pop(99) }}", "{'l': [1, 2, 3]}", "line 1: pop index out of range"},
    {"{{ [].pop() }}", NULL, "line 1: pop from empty list"},
    {"{{ d.pop('zz') }}", "{'d': {'a': 1, 'b': 2}}", "line 1: pop: the dict has no such key"},
    {"{{ l.index(99) }}", "{'l': [1, 2, 3]}", "line 1: the value is not in the list"},
    {"{{ l.remove(99) }}", "{'l': [1, 2, 3]}", "line 1: list.remove(x): x not in list"},
    {"{{ d.get() }}", "{'d': {'a': 1, 'b': 2}}", "line 1: get needs 1 argument(s): key default"},
    {"{{ d.get([1]) }}", "{'d': {'a': 1, 'b': 2}}", "line 1: unhashable type: 'list'"},
    {"{{ d.nosuch() }}", "{'d': {'a': 1, 'b': 2}}", "line 1: 'dict object' has no attribute 'nosuch'"},
    {"{{ range(200000) }}", NULL, "line 1: a range may have at most 100000 items"},
    {"{{ range(1,2,0) }}", NULL, "line 1: range() arg 3 must not be zero"},
    {"{{ range('a') }}", NULL, "line 1: 'str' object cannot be interpreted as an integer"},
    {"{{ range() }}", NULL, "line 1: range needs 1 argument(s): start stop step"},
    {"{{ dict(1) }}", NULL, "line 1: 'int' object is not iterable"},
    {"{{ cycler() }}", NULL, "line 1: cycler needs at least one item"},
    {"{{ raise_exception('boom ' ~ 1) }}", NULL, "boom 1"},
    {"{{ namespace(1) }}", NULL, "line 1: 'int' object is not iterable"},
    {"{% do l.append(1, 2) %}", "{'l': [1, 2, 3]}", "line 1: append takes at most 1 argument(s), not 2"},
    {0},
};
EXAMPLES_TEST(list_and_dict_methods_errors, true)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_filters_come_out),
        cmocka_unit_test(tojson_filter_come_out),
        cmocka_unit_test(list_filters_come_out),
        cmocka_unit_test(number_filters_come_out),
        cmocka_unit_test(tests_after_is_come_out),
        cmocka_unit_test(str_methods_come_out),
        cmocka_unit_test(list_and_dict_methods_come_out),
        cmocka_unit_test(unicode_strings_come_out),
        cmocka_unit_test(text_filters_errors_come_out),
        cmocka_unit_test(tojson_filter_errors_come_out),
        cmocka_unit_test(list_filters_errors_come_out),
        cmocka_unit_test(number_filters_errors_come_out),
        cmocka_unit_test(tests_after_is_errors_come_out),
        cmocka_unit_test(str_methods_errors_come_out),
        cmocka_unit_test(list_and_dict_methods_errors_come_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
