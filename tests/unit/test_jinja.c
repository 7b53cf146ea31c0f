/* test_jinja.c: the language: whitespace, expressions, statements and their errors. The results are those of jinja2 3.1 set up
 * as chat templates expect it. */
#include "jinja_examples.h"

static const example streams[] = {
    {"{{ 'y' if [] |map('upper') else 'n' }} {{ 'y' if []|select else 'n' }} {{ 'y' if [1]|reverse else 'n' }} {{ 'y' if {}|items "
     "else 'n' }} {{ 'y' if '' |reverse else 'n' }}",
     NULL,
     "y y y y n"},
    {"{% set s = [1,2,3]|select %}{% for i in s %}{{ i }}{% endfor %}|{% for i in s %}{{ i }}{% endfor %}|{{ s|list }}", NULL, "123||[]"},
    {"{% set s = [1,2,3]|map('string') %}{{ s|first }}{{ s|first }}{{ s|list }}", NULL, "12['3']"},
    {"{{ ([1]|map('string')) is sequence }} {{ ([1]|map('string')) is iterable }} {{ ([1]|select)[0] }}| {{ ([1]|select)[0] "
     "is defined }} {{ {'a':1}.items()[0] is defined }} {{ ({'a':1}.items()|list)[0] }} {{ ([1]|select) == [1] }}",
     NULL,
     "False True | False False ('a', 1) False"},
    {"{% for i in [1,2,3]|select %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}", NULL, "1/3False 2/3False 3/3True "},
    {"{% set s = [1,2,3]|reject('odd') %}{{ 2 in s }} {{ 2 in s }}", NULL, "True False"},
    {"{{ [1,2]|reverse|list }} {{ [3,1]|sort|first }} {{ range(6)[::2] }} {{ range(6)[1:4][1] }} {{ (range(9)[::-2])|list }}",
     NULL,
     "[2, 1] 1 range(0, 6, 2) 2 [8, 6, 4, 2, 0]"},
    {"{{ ['a']|map('upper')|map('lower')|join }} {{ {'a': 1}|items|map('last')|sum }}", NULL, "a 1"},
    {"{{ [{}, {}]|sort(attribute='x') }} {{ 2.5 is even }} {{ 3.0 is odd }} {{ [1,2]|truncate(5) }} {{ '%s' % nothing }}|",
     NULL,
     "[{}, {}] False True [1, 2] |"},
    {0},
};
EXAMPLES_TEST(streams, false)

static const example whitespace[] = {
    {"a\n", NULL, "a"},
    {"a\n\n", NULL, "a\n"},
    {"a\r\nb\rc\n", NULL, "a\nb\nc"},
    {"{% if true %}\nx\n{% endif %}\ny", NULL, "x\ny"},
    {"  {% if true %}\n  x\n  {% endif %}\ny", NULL, "  x\ny"},
    {"a  {% if true %} b {% endif %} c", NULL, "a   b  c"},
    {"a \n {%- if true -%} \n b \n {%- endif -%} \n c", NULL, "abc"},
    {"a\n  {%+ if true %}b{% endif %}", NULL, "a\n  b"},
    {"{% if true +%}\nx{% endif %}", NULL, "\nx"},
    {"  {{ 1 }}  \n", NULL, "  1  "},
    {"a {{- 1 -}} b", NULL, "a1b"},
    {"a\n{# c #}\nb", NULL, "a\nb"},
    {"a {#- c -#} b", NULL, "ab"},
    {"a\n  {# c #}  \nb", NULL, "a\n  \nb"},
    {"{% raw %}{{ x }}{% endraw %}", NULL, "{{ x }}"},
    {"{% raw %}\n{{ x }}\n{% endraw %}\ny", NULL, "\n{{ x }}\ny"},
    {"a {%- raw -%} {{ x }} {%- endraw -%} b", NULL, "a{{ x }}b"},
    {"  {% raw %} x {% endraw %}\nb", NULL, " x b"},
    {"x{% raw %}\n  {% endraw %}y", NULL, "x\ny"},
    {"{# {% raw %} #}x", NULL, "x"},
    {"{{ '}}' }}", NULL, "}}"},
    {"{{ '{%' }}", NULL, "{%"},
    {"{{ {'a': {'b': 1}}.a.b }}", NULL, "1"},
    {"{{ {'a': {}} }}", NULL, "{'a': {}}"},
    {"a\n\n{% set x = 1 %}\n\nb", NULL, "a\n\n\nb"},
    {"{%set x=1%}{{x}}", NULL, "1"},
    {"{{1}}{%- if 1 %}  a{% endif %}", NULL, "1  a"},
    {"\t{% if 1 %}\ta\t{% endif %}\t", NULL, "\ta\t\t"},
    {"{#-x-#}  y", NULL, "y"},
    {"a\n{#- x #}\nb", NULL, "ab"},
    {"a{# x +#}\nb", NULL, "a\nb"},
    {"  {{- 1 }}\n{{ 2 -}}\n 3", NULL, "1\n23"},
    {"{% if 1 -%}\n\n  a\n{%- endif %}", NULL, "a"},
    {"\302\240{%- if 1 %}x{% endif %}", NULL, "x"},
    {"\n{% if 1 %}a{% endif %}\n", NULL, "\na"},
    {"a{% raw %}{% if %}{% endraw %}b", NULL, "a{% if %}b"},
    {"{{ 1 -}}\n{% if 1 %}x{% endif %}", NULL, "1x"},
    {"x\n  {% raw %}\n  y\n  {% endraw %}\n  z", NULL, "x\n\n  y\n  z"},
    {"{% raw -%}\n a {% endraw %}", NULL, "a "},
    {"{# a #}{# b #}\n\n{# c #}", NULL, "\n"},
    {"{%- raw %} a{% endraw +%}\nb", NULL, " a\nb"},
    {0},
};
EXAMPLES_TEST(whitespace, false)

static const example literals[] = {
    {"{{ 1 }} {{ 1.5 }} {{ 1e5 }} {{ 1.0 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 0 }} {{ 1e-7 }} {{ 1E3 }} {{ 2.5e+2 "
     "}}",
     NULL,
     "1 1.5 100000.0 1.0 1000 31 5 15 0 1e-07 1000.0 250.0"},
    {"{{ \"a\" 'b' \"c\" }}", NULL, "abc"},
    {"{{ '\\n|\\t|\\\\|\\x41|\\u00e9|\\U0001F600|\\101|\\q|\\'' }}", NULL, "\n|\t|\\|A|é|😀|A|\\q|'"},
    {"{{ [1, 'a', none, true, 1.5] }}", NULL, "[1, 'a', None, True, 1.5]"},
    {"{{ (1,) }} {{ () }} {{ (1, 2) }}", NULL, "(1,) () (1, 2)"},
    {"{{ {'a': 1, 'b': [1], 1: 2} }}", NULL, "{'a': 1, 'b': [1], 1: 2}"},
    {"{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}", NULL, "True True None None False"},
    {"{{ 1, 2 }}", NULL, "(1, 2)"},
    {"{{ [] }} {{ {} }}", NULL, "[] {}"},
    {"{{ \"it's\" }} {{ [\"it's\"] }} {{ ['say \"hi\"'] }} {{ [\"\\\"'\"] }}", NULL, "it's [\"it's\"] ['say \"hi\"'] ['\"\\'']"},
    {"{{ ['a\\nb\\t\\x00\\x7f\\u2028é😀\\u200b\\\\'] }}", NULL, "['a\\nb\\t\\x00\\x7f\\u2028é😀\\u200b\\\\']"},
    {"{{ [1,2,] }} {{ {'a':1,} }}", NULL, "[1, 2] {'a': 1}"},
    {"{{ 9007199254740993 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1e22 }} {{ 5e-324 }} {{ 1.797693"
     "1348623157e308 }} {{ 0.1+0.2 }} {{ -0.0 }} {{ 100000000000000000.0 }}",
     NULL,
     "9007199254740993 1e+16 1000000000000000.0 123456789.125 1e-05 0.0001 1e+22 5e-324 1.7976931348623157e+308 0.3000000000000000"
     "4 -0.0 1e+17"},
    {"{{ 'a\nb' }}", NULL, "a\nb"},
    {"{{ 'é'|length }} {{ '日本語'[1] }} {{ '日本語'[::-1] }} {{ 'a日b'[1:] }}", NULL, "1 本 語本日 日b"},
    {"{{ 'x' if none }}|{{ 'x' if 1 }}", NULL, "|x"},
    {"{{ {'a':1, 'a':2} }}", NULL, "{'a': 2}"},
    {"{{ {1:'i', 1.0:'f', true:'b'} }}", NULL, "{1: 'b'}"},
    {"{{ {(1,2):'t'} }}", NULL, "{(1, 2): 't'}"},
    {"{{ 1.e5 if false }}", NULL, ""},
    {"{{ 12345678901234567890.0 }}", NULL, "1.2345678901234567e+19"},
    {"{{ 'x' }}", NULL, "x"},
    {0},
};
EXAMPLES_TEST(literals, false)

static const example operators[] = {
    {"{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} "
     "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}",
     NULL,
     "5.0 3 -4 1 2 -2 1024 0.5 3.0 0.5 3.5 64 4"},
    {"{{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 'ab' * 3 }} {{ [1] * 3 }} {{ 3 * 'ab' }} {{ [1] + [2] }} {{ (1,) "
     "+ (2,) }} {{ 'x' * -1 }}",
     NULL,
     "ab a1NoneTrue1.0 ababab [1, 1, 1] ababab [1, 2] (1, 2) "},
    {"{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ (1,) < (1,2) }} {{ "
     "1 != 2 }} {{ 2 >= 2 }} {{ 'é' > 'z' }} {{ true == 1 }} {{ none == none }} {{ '1' == 1 }}",
     NULL,
     "True True False True True True True True True True True True False"},
    {"{{ 1 in [1,2] }} {{ 'a' in 'abc' }} {{ 'a' in {'a':1} }} {{ 3 not in [1,2] }} {{ not 1 in [2] }} {{ '' in 'a' }} {{ 1.0 "
     "in [1] }} {{ 2 in (1,2) }}",
     NULL,
     "True True True True True True True True"},
    {"{{ 1 and 0 }} {{ 0 or 'x' }} {{ not 0 }} {{ none or false }} {{ '' and 1 }} {{ 1 and 2 or 3 }} {{ not not 1 }}",
     NULL,
     "0 x True False  2 True"},
    {"{{ -1 }} {{ +1 }} {{ - -1 }} {{ -1.5 }} {{ -true }} {{ +true }}", NULL, "-1 1 1 -1.5 -1 1"},
    {"{{ 1 if true else 2 }} {{ 1 if false else 2 if false else 3 }} {{ (1 if false) }}|", NULL, "1 3 |"},
    {"{{ -1|abs }} {{ (-1)|abs }} {{ 3 - 1|abs }} {{ 'a' ~ 'b'|upper }}", NULL, "1 1 2 aB"},
    {"{{ 10 - 3 - 2 }} {{ 100 / 10 / 2 }}", NULL, "5 5.0"},
    {"{{ true + true }} {{ true * 3 }}", NULL, "2 3"},
    {"{{ 5 // 0.3 }} {{ 1e308 * 10 }} {{ -5 // 0.3 }} {{ 5 % 0.3 }}", NULL, "16.0 inf -17.0 0.20000000000000018"},
    {"{{ [1,2,3] == [1,2,3] }} {{ {'a':1} == {'a':1.0} }} {{ (1,) == [1] }}", NULL, "True True False"},
    {"{{ '%s is %d and %.2f %5s|%-5s|%05d|%x|%o|%e|%%' % ('a', 3, 2.5, 'r', 'l', 42, 255, 8, 12345.678) }}",
     NULL,
     "a is 3 and 2.50     r|l    |00042|ff|10|1.234568e+04|%"},
    {"{{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }} {{ '%s' % 'x' }} {{ '%s' % [1,2] }} {{ '%r' % 'x' }} {{ '%+d % d %#x %g %G %c "
     "%5.1f|%-8.3f|' % (1, 2, 255, 0.0001, 1e20, 'z', 3.14159, 2.5) }}",
     NULL,
     "1-2 x [1, 2] 'x' +1  2 0xff 0.0001 1E+20 z   3.1|2.500   |"},
    {"{{ x }}|{{ x|default('d') }}", NULL, "|d"},
    {"{{ 3 | int + 4 }}", NULL, "7"},
    {"{{ 'abc' is string and 1 is number }}", NULL, "True"},
    {"{{ 1 is not none }} {{ not 1 is none }}", NULL, "True True"},
    {"{{ 2 is divisibleby 2 }} {{ 2 is divisibleby(2) }}", NULL, "True True"},
    {"{{ 'a' in x }}", NULL, "False"},
    {"{{ x == y }} {{ x == none }} {{ x != none }}", NULL, "True False True"},
    {"{{ 1.5 == 1.5 }} {{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}",
     NULL,
     "True False True"},
    {0},
};
EXAMPLES_TEST(operators, false)

static const example subscripts[] = {
    {"{{ a.b }} {{ a['b'] }} {{ a.c }}| {{ a['c'] }}| {{ l[0] }} {{ l[-1] }} {{ l[9] }}| {{ l.0 }} {{ s[0] }} {{ s[-1] }} {{ "
     "s[9] }}| {{ a.b.c }}|",
     "{'a': {'b': 'x'}, 'l': [1, 2, 3, 4], 's': 'hello'}",
     "x x | | 1 4 | 1 h o | |"},
    {"{{ l[1:] }} {{ l[:1] }} {{ l[:] }} {{ l[::2] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[5:] }} {{ l[1:-1] }} {{ l[-100:100] }} "
     "{{ l[2:0:-1] }} {{ l[:0:-1] }} {{ l[100::-1] }}",
     "{'l': [1, 2, 3, 4]}",
     "[2, 3, 4] [1] [1, 2, 3, 4] [1, 3] [4, 3, 2, 1] [3, 4] [] [2, 3] [1, 2, 3, 4] [3, 2] [4, 3, 2] [4, 3, 2, 1]"},
    {"{{ s[1:] }} {{ s[:-1] }} {{ s[::2] }} {{ s[::-1] }} {{ s[10:] }}| {{ s[-3:-1] }}", "{'s': 'hello'}", "ello hell hlo olleh | ll"},
    {"{{ a.keys() }} {{ a.values() }} {{ a.items() }}",
     "{'a': {'b': 'x'}}",
     "dict_keys(['b']) dict_values(['x']) dict_items([('b', 'x')])"},
    {"{{ a['items'] is callable }} {{ a.items is callable }} {{ d.items is callable }} {{ d['items'] }}",
     "{'a': {'b': 'x'}, 'd': {'items': 5}}",
     "True True True 5"},
    {"{{ (1,2,3)[1:] }} {{ (1,2)[0] }}", NULL, "(2, 3) 1"},
    {"{{ none.a }}|{{ none['a'] }}|{{ 1.a if false }}", "{'a': {'b': 'x'}}", "||"},
    {"{{ l['a'] }}|{{ l.foo }}|{{ s.foo }}|", "{'a': {'b': 'x'}, 'l': [1, 2, 3, 4], 's': 'hello'}", "|||"},
    {"{{ l[1.5] }}|{{ a[l] }}|", "{'a': {'b': 'x'}, 'l': [1, 2, 3, 4]}", "||"},
    {"{{ a[1] }}|{{ d[1] }}|", "{'a': {'b': 'x'}, 'd': {'items': 5}}", "||"},
    {"{{ a.b.upper() }} {{ a['b'].upper() }}", "{'a': {'b': 'x'}}", "X X"},
    {"{{ s.0 }} {{ s[1,2] }}|", "{'s': 'hello'}", "h |"},
    {"{{ ((1,2),3)[0][1] }}", NULL, "2"},
    {"{{ {'a':{'b':[1,{'c':5}]}}.a.b[1].c }}", "{'a': {'b': 'x'}}", "5"},
    {"{{ l[true] }}", "{'l': [1, 2, 3, 4]}", "2"},
    {"{{ range(10)[2:5] is iterable }} {{ range(10)[3] }} {{ range(5)|list }} {{ range(1,10,3)|list }} {{ range(5,0,-2)|list "
     "}} {{ range(3) }} {{ range(0,6,2) }} {{ range(0)|list }}",
     NULL,
     "True 3 [0, 1, 2, 3, 4] [1, 4, 7] [5, 3, 1] range(0, 3) range(0, 6, 2) []"},
    {0},
};
EXAMPLES_TEST(subscripts, false)

static const example conditions[] = {
    {"{% if a %}A{% elif b %}B{% else %}C{% endif %}", "{'a': 0, 'b': 1}", "B"},
    {"{% if x is defined and x %}1{% else %}0{% endif %}", NULL, "0"},
    {"{% if a and b %}1{% elif not a %}2{% endif %}", "{'a': 0, 'b': 1}", "2"},
    {"{% if b: %}x{% endif %}", "{'b': 1}", "x"},
    {"{% if a, b %}x{% endif %}", "{'a': 0, 'b': 1}", "x"},
    {0},
};
EXAMPLES_TEST(conditions, false)

static const example loops[] = {
    {"{% for i in l %}{{ i }}{% endfor %}", "{'l': [1, 2, 3]}", "123"},
    {"{% for i in [] %}x{% else %}none{% endfor %}", NULL, "none"},
    {"{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}", "{'l': [1, 2, 3]}", "1:2/2 2:3/2 "},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{'d': {'a': 1, 'b': 2}}", "a=1;b=2;"},
    {"{% for k in d %}{{ k }}{% endfor %}", "{'d': {'a': 1, 'b': 2}}", "ab"},
    {"{% for c in 'héy' %}[{{ c }}]{% endfor %}", NULL, "[h][é][y]"},
    {"{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last "
     "}}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
     "{'l': [1, 2, 3]}",
     "1032TrueFalse310 2121FalseFalse310 3210FalseTrue310 "},
    {"{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{'l': [1, 2, 3]}", "<1>2 1<2>3 2<3> "},
    {"{% for i in l %}{{ loop.cycle('a','b') }}{% endfor %}", "{'l': [1, 2, 3]}", "aba"},
    {"{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}", NULL, "True False True False True "},
    {"{% for i in l %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}", "{'l': [1, 2, 3]}", "1"},
    {"{% for i in l %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{'l': [1, 2, 3]}", "13"},
    {"{% for i in l %}{% for j in l %}{{ i }}{{ j }}{{ loop.index }} {% if j == 2 %}{% break %}{% endif %}{% endfor %}{{ loop.inde"
     "x }}|{% endfor %}",
     "{'l': [1, 2, 3]}",
     "111 122 1|211 222 2|311 322 3|"},
    {"{% for x in tree recursive %}{{ x.n }}{% if x.c %}({{ loop(x.c) }}){% endif %}{{ loop.depth }}{% endfor %}",
     "{'tree': [{'n': 1, 'c': [{'n': 2}, {'n': 3, 'c': [{'n': 4}]}]}]}",
     "1(223(43)2)1"},
    {"{% for a, (b, c) in [[1,[2,3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", NULL, "123"},
    {"{% for i in l %}{% set q = i %}{% endfor %}{{ q }}|", "{'l': [1, 2, 3]}", "|"},
    {"{% set q = 0 %}{% for i in l %}{{ q }}{% set q = q + i %}{{ q }} {% endfor %}{{ q }}", "{'l': [1, 2, 3]}", "01 02 03 0"},
    {"{% for i in undefinedname %}x{% else %}empty{% endfor %}", NULL, "empty"},
    {"{% for i in range(3) %}{{ i }}{% endfor %}", NULL, "012"},
    {"{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", NULL, "123"},
    {"{% for i in l|reverse %}{{ i }}{{ loop.last }}{% endfor %}", "{'l': [1, 2, 3]}", "3False2False1True"},
    {"{% for i in l if i != 2 %}{{ loop.last }}{{ loop.revindex }}{{ loop.nextitem }} {% endfor %}",
     "{'l': [1, 2, 3]}",
     "False23 True1 "},
    {"{% set ns = namespace(stop=false) %}{% for i in l if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif "
     "%}{% endfor %}",
     "{'l': [1, 2, 3]}",
     "12"},
    {"{% for loopvar in l %}{{ loop.foo }}|{% endfor %}", "{'l': [1, 2, 3]}", "|||"},
    {"{% for i in l %}{% for j in [1] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{'l': [1, 2, 3]}", "111213"},
    {"{% for i in l %}{{ loop.length }}{% if loop.first %}f{% elif loop.last %}l{% endif %}{% endfor %}", "{'l': [1, 2, 3]}", "3f33l"},
    {"{% for i in l recursive %}{{ i }}{% endfor %}", "{'l': [1, 2, 3]}", "123"},
    {"{% for i in l if i is odd %}{% else %}x{% endfor %}", "{'l': [1, 2, 3]}", ""},
    {0},
};
EXAMPLES_TEST(loops, false)

static const example assignments[] = {
    {"{% set a = 1 %}{{ a }}", NULL, "1"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", NULL, "12"},
    {"{% set a = 1, 2 %}{{ a }}", NULL, "(1, 2)"},
    {"{% set x %}a{{ 1 }}b{% endset %}[{{ x }}]", NULL, "[a1b]"},
    {"{% set x | upper %}abc{% endset %}{{ x }}", NULL, "ABC"},
    {"{% set x | replace('a','b') | upper %}abc{% endset %}{{ x }}", NULL, "BBC"},
    {"{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = 5 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|", NULL, "25|"},
    {"{% set ns = namespace() %}{% for i in [1,2,3] %}{% set ns.x = i %}{% endfor %}{{ ns.x }}", NULL, "3"},
    {"{% if true %}{% set z = 5 %}{% endif %}{{ z }}", NULL, "5"},
    {"{% set (a, b) = [1, 2] %}{{ a + b }}", NULL, "3"},
    {"{{ namespace(a=1,b='x') }} {{ namespace({'q':1}).q }}", NULL, "<Namespace {'a': 1, 'b': 'x'}> 1"},
    {"{% set x = namespace(v=[]) %}{% set x.v = x.v + [1] %}{{ x.v }}", "{'v': 'var'}", "[1]"},
    {"{% set v = v %}{{ v }}", "{'v': 'var'}", "var"},
    {0},
};
EXAMPLES_TEST(assignments, false)

static const example macros[] = {
    {"{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(b=5, a=4) "
     "}}",
     NULL,
     "1-2-x;1-3-x;1-2-y;4-5-x;"},
    {"{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}", NULL, "[]"},
    {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", NULL, "(1, 2){'x': 3}"},
    {"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body{% endcall %}", NULL, "<body>"},
    {"{% macro m(x) %}{{ caller(x, 2) }}{% endmacro %}{% call(a, b) m(1) %}{{ a }}+{{ b }}{% endcall %}", NULL, "1+2"},
    {"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", NULL, "54321"},
    {"{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}", NULL, "2"},
    {"{% macro m() %}{{ late }}{% endmacro %}{% set late = 3 %}{{ m() }}", NULL, "3"},
    {"{% macro m() %}{{ i }}|{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}", NULL, "|"},
    {"{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", NULL, "12"},
    {"{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}", NULL, "7"},
    {"{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m is callable }}", NULL, "FalseTrueTrue"},
    {"{% macro m(a, b=1) %}{% endmacro %}{{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }}", NULL, "m ('a', 'b') False"},
    {"{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]", NULL, "[  x\n]"},
    {"{% macro m() %}{% set v = 1 %}{{ v }}{% endmacro %}{{ m() }}{{ v }}|", NULL, "1|"},
    {"{{ m }}{% macro m() %}{% endmacro %}{{ m }}", NULL, "<Macro 'm'>"},
    {"{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}", NULL, "12"},
    {"{% macro a() %}A{{ caller() }}{% endmacro %}{% macro b() %}B{{ caller() }}{% endmacro %}{% call a() %}{% call b() %}x{% "
     "endcall %}{% endcall %}",
     NULL,
     "ABx"},
    {"{% macro m(a, a2) -%}\n {{ a }}\n{%- endmacro %}{{ m('q')|upper ~ '!' }}", NULL, "Q!"},
    {"{% macro m(q) %}{% if q is mapping %}{% for k, v in q|items %}{{ k }}:{{ m(v) }},{% endfor %}{% else %}{{ q }}{% endif "
     "%}{% endmacro %}{{ m({'a':{'b':{'c':1}},'d':2}) }}",
     NULL,
     "a:b:c:1,,,d:2,"},
    {0},
};
EXAMPLES_TEST(macros, false)

static const example blocks[] = {
    {"{% filter upper %}abc{{ x }}{% endfilter %}", "{'x': 'd'}", "ABCD"},
    {"{% filter replace('a','b')|upper %}aaa{% endfilter %}", NULL, "BBB"},
    {"{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}|", NULL, "12|"},
    {"{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}|", NULL, "1|"},
    {"{% set a=1 %}{% with a=2, b=a %}{{ a }}{{ b }}{% endwith %}", NULL, "21"},
    {"{% generation %}x{% endgeneration %}", "{'x': 'd'}", "x"},
    {"{% do [1].append(2) %}x", "{'x': 'd'}", "x"},
    {"{% block foo %}x{% endblock %}", "{'x': 'd'}", "x"},
    {"{% block foo %}x{% endblock foo %}y", "{'x': 'd'}", "xy"},
    {"{% print 1 %}{% print 1, 2 %}", NULL, "112"},
    {"{% for i in [1,2] %}{% with j=i %}{% if j == 1 %}{% continue %}{% endif %}{{ j }}{% endwith %}{% endfor %}", NULL, "2"},
    {0},
};
EXAMPLES_TEST(blocks, false)

static const example undefined_values[] = {
    {"{{ u ~ 'x' }}|{{ u == '' }}|{{ not u }}|{{ u or 'x' }}|{{ u and 1 }}|{{ [u] }}|{{ u|string }}|{{ u is none }}",
     NULL,
     "x|False|True|x||[Undefined]||False"},
    {"{% if u %}{% else %}n{% endif %}{% for i in u %}{% endfor %}{{ u|list }}", "{'n': {'x': null}}", "n[]"},
    {"{{ 'a' in u }} {{ 1 not in u }}", NULL, "False True"},
    {"{{ '%s' % u }}|{{ '{}'.format(u) }}|{{ u|join(',') }}|", NULL, "|||"},
    {"{{ m.x == u }} {{ m.x != u }}", "{'m': {}}", "True False"},
    {"{{ l[u] }}|{{ m[u] }}|", "{'m': {}, 'l': [1]}", "||"},
    {"{{ {u: 1}|length }}", NULL, "1"},
    {"{{ {'a': u} }}", NULL, "{'a': Undefined}"},
    {0},
};
EXAMPLES_TEST(undefined_values, false)

static const example text_that_looks_like_tags[] = {
    {"}}", NULL, "}}"},
    {"%}", NULL, "%}"},
    {"{ {", NULL, "{ {"},
    {"{}", NULL, "{}"},
    {0},
};
EXAMPLES_TEST(text_that_looks_like_tags, false)

static const example operators_errors[] = {
    {"{{ 1 + 1 ~ 2 * 3 }}", NULL, "line 1: unsupported operand type(s) for +: 'int' and 'str'"},
    {"{{ x < 1 }}", NULL, "line 1: 'x' is undefined"},
    {"{{ 1 + x }}", NULL, "line 1: 'x' is undefined"},
    {"{{ 'a' + 1 }}", NULL, "line 1: can only concatenate str (not \"int\") to str"},
    {"{{ [1] + 'a' }}", NULL, "line 1: can only concatenate list (not \"str\") to list"},
    {"{{ 1 / 0 }}", NULL, "line 1: division by zero"},
    {"{{ 1 // 0 }}", NULL, "line 1: division by zero"},
    {"{{ 1 % 0 }}", NULL, "line 1: division by zero"},
    {"{{ 0 ** -1 }}", NULL, "line 1: 0.0 cannot be raised to a negative power"},
    {"{{ 1 < 'a' }}", NULL, "line 1: '<' not supported between instances of 'int' and 'str'"},
    {"{{ none + 1 }}", NULL, "line 1: unsupported operand type(s) for +: 'NoneType' and 'int'"},
    {"{{ none < 1 }}", NULL, "line 1: '<' not supported between instances of 'NoneType' and 'int'"},
    {"{{ 1 in 5 }}", NULL, "line 1: argument of type 'int' is not iterable"},
    {"{{ 1 in 'a' }}", NULL, "line 1: 'in <string>' requires string as left operand, not int"},
    {"{{ {} + {} }}", NULL, "line 1: unsupported operand type(s) for +: 'dict' and 'dict'"},
    {"{{ -'a' }}", NULL, "line 1: bad operand type for unary -: 'str'"},
    {"{{ 'a' - 'b' }}", NULL, "line 1: unsupported operand type(s) for -: 'str' and 'str'"},
    {"{{ {[1]: 2} }}", NULL, "line 1: unhashable type: 'list'"},
    {0},
};
EXAMPLES_TEST(operators_errors, true)

static const example subscripts_errors[] = {
    {"{{ x.y }}", NULL, "line 1: 'x' is undefined"},
    {"{{ x['y'] }}", NULL, "line 1: 'x' is undefined"},
    {"{{ x.y.z }}", NULL, "line 1: 'x' is undefined"},
    {"{{ l[::0] }}", "{'l': [1, 2, 3, 4]}", "line 1: slice step cannot be zero"},
    {"{{ l[x:] }}", "{'l': [1, 2, 3, 4]}", "line 1: 'x' is undefined"},
    {0},
};
EXAMPLES_TEST(subscripts_errors, true)

static const example loops_errors[] = {
    {"{% for i in none %}{% endfor %}", NULL, "line 1: 'NoneType' object is not iterable"},
    {"{% for i in 5 %}{% endfor %}", NULL, "line 1: 'int' object is not iterable"},
    {"{% for a, b in [[1]] %}{% endfor %}", NULL, "line 1: not enough values to unpack (expected 2, got 1)"},
    {"{% for a, b in [[1,2,3]] %}{% endfor %}", NULL, "line 1: too many values to unpack (expected 2)"},
    {"{% for x in l %}{{ loop(x) }}{% endfor %}",
     "{'l': [1, 2, 3]}",
     "line 1: the loop must have the 'recursive' marker to be called recursively"},
    {0},
};
EXAMPLES_TEST(loops_errors, true)

static const example assignments_errors[] = {
    {"{% set d = {} %}{% set d.x = 1 %}", NULL, "line 1: cannot assign attribute on non-namespace object"},
    {"{% set nope.x = 1 %}", NULL, "line 1: 'nope' is undefined"},
    {"{% set a, ns.b = 1, 2 %}", NULL, "line 1: 'ns' is undefined"},
    {"{% set a = b = 1 %}", NULL, "line 1: expected %}, found ="},
    {0},
};
EXAMPLES_TEST(assignments_errors, true)

static const example macros_errors[] = {
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", NULL, "line 1: macro 'm' takes not more than 1 argument(s)"},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}", NULL, "line 1: macro 'm' takes no keyword argument 'b'"},
    {"{% macro m(a) %}{{ caller() }}{% endmacro %}{{ m(1) }}", NULL, "line 1: No caller defined"},
    {"{% macro m(x) %}{{ x.y }}{% endmacro %}{{ m() }}", NULL, "line 1: parameter 'x' was not provided"},
    {"{{ nofunc() }}", NULL, "line 1: 'nofunc' is undefined"},
    {"{{ 'a'() }}", NULL, "line 1: 'str' object is not callable"},
    {"{% macro m(a) %}{% endmacro %}{% call m() %}x{% endcall %}", NULL, "line 1: macro 'm' takes no keyword argument 'caller'"},
    {"{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}", NULL, "line 1: 'm' is undefined"},
    {0},
};
EXAMPLES_TEST(macros_errors, true)

static const example undefined_values_errors[] = {
    {"{{ a.b }}", NULL, "line 1: 'a' is undefined"},
    {"{{ a.b.c }}|{{ n.x.y }}", "{'n': {'x': null}}", "line 1: 'a' is undefined"},
    {"{{ m.x.y }}", "{'m': {}}", "line 1: 'dict object' has no attribute 'x'"},
    {"{{ m['x']['y'] }}", "{'m': {}}", "line 1: 'dict object' has no attribute 'x'"},
    {"{{ l[5].x }}", "{'l': [1]}", "line 1: list object has no element 5"},
    {"{{ m.x() }}", "{'m': {}}", "line 1: 'dict object' has no attribute 'x'"},
    {"{{ u() }}", NULL, "line 1: 'u' is undefined"},
    {"{{ u + 1 }}", NULL, "line 1: 'u' is undefined"},
    {"{{ 1 - u }}", NULL, "line 1: 'u' is undefined"},
    {"{{ -u }}", NULL, "line 1: 'u' is undefined"},
    {"{{ u < 1 }}", NULL, "line 1: 'u' is undefined"},
    {"{{ u[0] }}", NULL, "line 1: 'u' is undefined"},
    {"{{ u|abs }}", NULL, "line 1: 'u' is undefined"},
    {"{{ m.x|default('q') }} {{ m.x is defined }} {{ (m.x).y is defined }}", "{'m': {}}", "line 1: 'dict object' has no attribute 'x'"},
    {"{{ u in [1] }} {{ u in 'a' }}", NULL, "line 1: 'u' is undefined"},
    {"{{ u ** 2 }}", NULL, "line 1: 'u' is undefined"},
    {"{{ 'a' * u }}", NULL, "line 1: 'u' is undefined"},
    {"{{ u.upper() }}", NULL, "line 1: 'u' is undefined"},
    {0},
};
EXAMPLES_TEST(undefined_values_errors, true)

static const example syntax_errors[] = {
    {"{{", NULL, "line 1: an expression {{ has no end }}"},
    {"{% if %}", NULL, "line 1: expected an expression, found %}"},
    {"{% if true %}", NULL, "line 1: the block that begins here has no {% endif %}"},
    {"{% endif %}", NULL, "line 1: unknown tag 'endif'"},
    {"{% for x %}", NULL, "line 1: expected in, found %}"},
    {"{% for x in %}{% endfor %}", NULL, "line 1: expected an expression, found %}"},
    {"{{ 1 + }}", NULL, "line 1: expected an expression, found }}"},
    {"{{ (1 }}", NULL, "line 1: unexpected '}'"},
    {"{{ 1) }}", NULL, "line 1: unexpected ')'"},
    {"{{ [1 }}", NULL, "line 1: unexpected '}'"},
    {"{{ 'a }}", NULL, "line 1: a string has no closing quote"},
    {"{# x", NULL, "line 1: a comment {# has no end #}"},
    {"{% nosuch %}", NULL, "line 1: unknown tag 'nosuch'"},
    {"{% set %}", NULL, "line 1: expected a name to assign to, found %}"},
    {"{% set 1 = 2 %}", NULL, "line 1: expected a name to assign to, found 1"},
    {"{% macro %}{% endmacro %}", NULL, "line 1: expected the name of the macro, found %}"},
    {"{% macro m(a=1, b) %}{% endmacro %}", NULL, "line 1: expected a default, as the arguments before have one, found )"},
    {"{% break %}", NULL, "line 1: expected a loop around it, found break"},
    {"{% call x %}{% endcall %}", NULL, "line 1: expected a call, found %}"},
    {"{{ a b }}", NULL, "line 1: expected }}, found b"},
    {"{{ a..b }}", NULL, "line 1: expected a name or number after the dot, found ."},
    {"{{ a. }}", NULL, "line 1: expected a name or number after the dot, found }}"},
    {"{{ f(a=1, 2) }}", NULL, "line 1: expected arguments in the order: by position, by name, *list, **dict, found 2"},
    {"{{ f(**a, *b) }}", NULL, "line 1: expected arguments in the order: by position, by name, *list, **dict, found *"},
    {"{{ }}", NULL, "line 1: expected an expression, found }}"},
    {"{% if a %}{% else %}{% else %}{% endif %}", NULL, "line 1: unknown tag 'else'; the block it is in needs endif"},
    {"{{ @ }}", NULL, "line 1: unexpected character '@'"},
    {"{{ a ? b }}", NULL, "line 1: unexpected character '?'"},
    {"{% for a in b %}{% endif %}", NULL, "line 1: unknown tag 'endif'; the block it is in needs endfor or else"},
    {"{% elif %}", NULL, "line 1: unknown tag 'elif'"},
    {"{{ 1 is }}", NULL, "line 1: expected the name of a filter or test, found }}"},
    {"{{ a | }}", NULL, "line 1: expected the name of a filter or test, found }}"},
    {"{{ {1} }}", NULL, "line 1: expected a colon, found }"},
    {"{{ {1:} }}", NULL, "line 1: expected an expression, found }"},
    {"{{ x[1 }}", NULL, "line 1: unexpected '}'"},
    {"{{ x[ }}", NULL, "line 1: unexpected '}'"},
    {"{% set a.b.c = 1 %}", NULL, "line 1: expected %}, found ."},
    {"{% set a[0] = 1 %}", NULL, "line 1: expected %}, found ["},
    {"{% for true in x %}{% endfor %}", NULL, "line 1: expected a name to assign to, found true"},
    {"{% block %}{% endblock %}", NULL, "line 1: expected the name of the block, found %}"},
    {"{% with a %}{% endwith %}", NULL, "line 1: expected =, found %}"},
    {"{% filter %}{% endfilter %}", NULL, "line 1: expected the name of a filter or test, found %}"},
    {"{% endmacro %}", NULL, "line 1: unknown tag 'endmacro'"},
    {"{% if a = b %}{% endif %}", NULL, "line 1: expected %}, found ="},
    {"{{ 1 if }}", NULL, "line 1: expected an expression, found }}"},
    {"{{ not }}", NULL, "line 1: expected an expression, found }}"},
    {"{{ '\\xZZ' }}", NULL, "line 1: a string has a malformed \\x, \\u or \\U escape"},
    {"{{ '\\u12' }}", NULL, "line 1: a string has a malformed \\x, \\u or \\U escape"},
    {"{% extends 'a' %}", NULL, "line 1: unknown tag 'extends'"},
    {"{% include 'a' %}", NULL, "line 1: unknown tag 'include'"},
    {"{% import 'a' as b %}", NULL, "line 1: unknown tag 'import'"},
    {"{{ 0777 }}", NULL, "line 1: a number starts with a zero"},
    {"{{ a!b }}", NULL, "line 1: unexpected character '!'"},
    {"{%", NULL, "line 1: a tag {% has no end %}"},
    {"{{ 'a' '", NULL, "line 1: a string has no closing quote"},
    {"{%}", NULL, "line 1: unexpected '}'"},
    {"{{}}}}", NULL, "line 1: expected an expression, found }}"},
    {"{{ x }", NULL, "line 1: unexpected '}'"},
    {"{% if true %}a{% elseif %}{% endif %}", NULL, "line 1: unknown tag 'elseif'; the block it is in needs elif or else or endif"},
    {"{% macro m() %}{% break %}{% endmacro %}", NULL, "line 1: expected a loop around it, found break"},
    {"{{ a.b c }}", NULL, "line 1: expected }}, found c"},
    {0},
};
EXAMPLES_TEST(syntax_errors, true)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_come_out),
        cmocka_unit_test(whitespace_come_out),
        cmocka_unit_test(literals_come_out),
        cmocka_unit_test(operators_come_out),
        cmocka_unit_test(subscripts_come_out),
        cmocka_unit_test(conditions_come_out),
        cmocka_unit_test(loops_come_out),
        cmocka_unit_test(assignments_come_out),
        cmocka_unit_test(macros_come_out),
        cmocka_unit_test(blocks_come_out),
        cmocka_unit_test(undefined_values_come_out),
        cmocka_unit_test(text_that_looks_like_tags_come_out),
        cmocka_unit_test(operators_errors_come_out),
        cmocka_unit_test(subscripts_errors_come_out),
        cmocka_unit_test(loops_errors_come_out),
        cmocka_unit_test(assignments_errors_come_out),
        cmocka_unit_test(macros_errors_come_out),
        cmocka_unit_test(undefined_values_errors_come_out),
        cmocka_unit_test(syntax_errors_come_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
