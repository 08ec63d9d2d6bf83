#!/usr/bin/env python3
"""Writes jinja_cases.json: small templates of our own and what Python's jinja2 makes of them.

    python3 tests/tokenizer/make_jinja_cases.py        (needs the package jinja2)
"""

import json
import pathlib

import jinja2
import jinja_oracle

TALK = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Grüße, 世界"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes & 'no'"}, {"role": "user", "content": "More\n"}]
VARIABLES = {"messages": TALK, "tools": None, "add_generation_prompt": True, "bos_token": "<s>", "n": 7, "f": 2.5,
             "t": True, "z": "", "d": {"b": 1, "A": [1, 2.0, None, True], "items": "x"},
             "words": ["pear", "Apple", "fig", "apple"]}

CASES = {
    "white space": [
        "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n",
        "a\n  {%+ if true +%}\n b{%+ endif %}\n", " {{ 1 }} \n {{- 2 -}} \n 3", "{# c #}\na\n  {# c #}\nb {#- c -#} d",
        "{%- for i in [1, 2] %}\n  x{{ i }}\n{%- endfor %}\n\n", "a\r\nb\rc\n\n", "a{% raw %}\n {{ x }} {% y %}\n{% endraw %}\nb",
        "a {%- raw -%} \n {{ x }} {%- endraw -%} b", "\t{% set x = 1 %}\n\t{{ x }}", "x {% if t %}y{% endif %}\n\nz",
        "{{ '}}' }}{{ {'a': {'b': 1}}['a'] }}", "{% if true %}\n\n{% endif %}|", "  {% set a = 1 %}  {% set b = 2 %}  |",
        "{{ 1 }}\n", "\n\n", "", "{% set x = 1 -%}\n\n  y", "a{{- ' b' }}\u00a0{{- 'c' }}", "{#+ kept #}  x", "   {#- gone #} x",
    ],
    "literals": [
        "{{ 'a\\n\\t\\x41\\u00e9\\'\\\"\\\\\\q\\101' }}", "{{ \"it's\" 'two' }}", "{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}",
        "{{ 1.5 }} {{ 1e3 }} {{ 2.50 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1e15 }}", "{{ true }} {{ False }} {{ none }} {{ None }}",
        "{{ [1, 'a', none, true, 2.0, [], {}, (1,), ()] }}", "{{ {'a': 1, 2: 'b', 'c': {'d': [1]}} }}", "{{ (1, 2) }} {{ 1, 2 }}",
        "{{ [\"it's\", 'say \"x\"', \"both ' and \\\"\", 'line\\nend', 'tab\\t', '\\x07', 'é世\\u200b'] }}", "{{ {'a': 1, 'a': 2} }}",
        "{{ [1, 2,] }} {{ {'a': 1,} }}", "{{ 'multi\nline' }}", "{{ 'a\\\nb' }}", "{{ -3 }} {{ +4 }} {{ - 3 ** 2 }} {{ 2 ** 3 ** 2 }}",
    ],
    "arithmetic": [
        "{{ 7 + 2 }} {{ 7 - 9 }} {{ 7 * 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
        "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2.0 ** 3 }} {{ 1 + 2.0 }} {{ true + 1 }}", "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }}|",
        "{{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}", "{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] ~ missing }}", "{{ 1 ~ 2 + 3 }}", "{{ 'a' ~ 'b' * 2 }}",
        "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ none + 1 }}", "{{ [1] + (2,) }}", "{{ missing + 1 }}", "{{ -'a' }}",
        "{{ '%s is %d or %5.2f%%' % ('x', 3, 2.5) }} {{ '%s' % 'a' }} {{ '%(a)s' % {'a': 1} }} {{ '%05d|%-5s|%+d' % (42, 'ab', 3) }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % ('a',) }}",
        "{{ '%x %X %o %e %g %r' % (255, 255, 8, 12345.678, 0.0001, 'q') }}",
    ],
    "comparisons": [
        "{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == false }} {{ missing == other }} {{ [1] == [1.0] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}",
        "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) <= (1,) }} {{ 2 >= 1 != 3 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ missing < 1 }}",
        "{{ 'a' in 'abc' }} {{ 1 in [1, 2] }} {{ 3 not in [1] }} {{ 'b' in d }} {{ '' in 'x' }} {{ 1 in missing }} {{ 'x' in ('x', 'y') }}", "{{ 1 in 'abc' }}", "{{ missing in 'abc' }}", "{{ 1 in none }}", "{{ [] in d }}",
        "{{ 1 and 0 }} {{ 1 and 'x' }} {{ 0 or 'y' }} {{ '' or none }} {{ not 1 }} {{ not '' }} {{ not missing }} {{ not 1 == 2 }}", "{{ 'a' if t else 'b' }} {{ 'a' if z }}| {{ 1 if 0 else 2 if 0 else 3 }}",
        "{{ 0 or missing }}|", "{{ (none or missing) is defined }}", "{{ [] == () }} {{ 'a' != 'b' }}",
    ],
    "attributes and items": [
        "{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[-1].role }} {{ messages.0.role }}", "{{ d.b }} {{ d['b'] }} {{ d.nothing }}| {{ d['nothing'] }}|", "{{ d.nothing.more }}", "{{ missing.x }}", "{{ missing[0] }}",
        "{{ none.x }}|{{ none['x'] }}|{{ (1).x }}|{{ messages[99] }}|{{ 'abc'[5] }}|", "{{ 'abc'[0] }} {{ 'abc'[-1] }} {{ 'Grüße'[2] }}", "{{ d.items() | list }}", "{{ d['items'] }}", "{{ d.A[1] }}", "{{ 'abc'['upper']() }}",
        "{{ messages[1:] | length }} {{ [1, 2, 3, 4][1:3] }} {{ [1, 2, 3][::-1] }} {{ 'Grüße'[::-1] }} {{ 'abcdef'[-3:-1] }} {{ 'abcdef'[::2] }} {{ 'abc'[5:] }}| {{ (1, 2, 3)[:2] }} {{ [1, 2, 3, 4, 5][3:0:-2] }}",
        "{{ missing[1:] }}", "{{ tools[:1] }}", "{{ d[1:] }}", "{{ [1, 2][::0] }}", "{{ {1: 'a', true: 'b'}[1] }}", "{{ [1, 2][true] }}", "{{ d.pop('b') }}", "{{ [1].append(2) }}", "{{ d.pop is defined }}", "{{ d.get('b') }} {{ d.get('x') }} {{ d.get('x', 3) }} {{ d.get('x', none) }}", "{{ d.get('x', default=3) }}", "{{ 'a'.strip(chars='a') }}", "{{ 1250 | round(-2) }} {{ 1350 | round(-2) }} {{ -1250 | round(-2) }} {{ true | round }} {{ 5 | round(-1) }} {{ 15 | round(-1) }}",
        "{{ d.keys() | list }} {{ d.values() | list }} {{ d.keys() }} {{ d.items() }}", "{{ missing() }}", "{{ 'a'() }}", "{{ d.A.index(none) }} {{ [1, 1, 2].count(1) }}", "{{ [1].index(9) }}", "{{ {[]: 1} }}",
    ],
    "statements": [
        "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ b }}", "{% set a, b = [1] %}",
        "{% set x %}a {{ n }} b{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'o') %}abc{% endset %}{{ x }}", "{% filter upper %}abc {{ 'd' }}{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}|", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
        "{% print 1, 'a' %}", "{% generation %}x{{ n }}{% set q = 1 %}{% endgeneration %}{{ q }}|", "{% block b %}in{% endblock %}", "{% nothing %}", "{% if true %}", "{% endif %}", "{% for %}", "{{ 1 + }}", "{{", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ 'a }}", "{# open", "{% raw %} x",
        "{{ a b }}", "{{ (1, 2 }}", "{{ 1 } }}", "{{ @ }}", "{% include 'x' %}", "{% break %}", "{{ x is }}", "{{ f(a=1, 2) }}",
        "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{% set ns.c = [1] %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.none }}|{{ ns['a'] }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns }}",
        "{% if t %}{% set v = 1 %}{% endif %}{{ v }}", "{% if z %}{% set v = 1 %}{% endif %}{{ v }}|", "{% set n = 3 %}{{ n }}",
    ],
    "loops": [
        "{% for m in messages %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }} {% endfor %}",
        "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem.role if not loop.last else '-' }} {% endfor %}", "{% for m in messages %}{{ loop.previtem.role }}{% endfor %}",
        "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in [1] %}a{% else %}none{% endfor %}", "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in none %}a{% endfor %}", "{% for x in 5 %}a{% endfor %}",
        "{% for c in 'Grü' %}{{ c }}.{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}", "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
        "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.length }}{{ m.content }}{% endfor %}", "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{{ x }}{% for x in [1] %}{% endfor %}{{ x }}|",
        "{% set c = 0 %}{% for x in [1, 2, 3] %}{% set c = c + x %}{{ c }} {% endfor %}{{ c }}", "{% set ns = namespace(c=0) %}{% for x in [1, 2, 3] %}{% set ns.c = ns.c + x %}{% endfor %}{{ ns.c }}", "{% for x in [1, 2] %}{% for y in 'ab' %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }};{% endfor %}",
        "{% for x in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %} {{ range(2, 8, 3) | list }} {{ range(3, 0, -1) | list }} {{ range(0) | list }}", "{{ range(1000000) | list }}", "{% for i in range(2) %}{% set y = i %}{% endfor %}{{ y }}|",
        "{% for x in [1, 2] %}{% if loop.first %}{% set z = 'q' %}{% endif %}[{{ z }}]{% endfor %}", "{% set g = messages | selectattr('role', 'equalto', 'user') %}{% for m in g %}{{ m.role }}{% endfor %}{% for m in g %}{{ m.role }}{% endfor %}|", "{% for x in [3, 1] | sort %}{{ x }}{{ loop.last }}{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ b }}{% endfor %}", "{% for loop_item in [1] %}{{ loop.nothing }}|{% endfor %}{{ loop }}|",
    ],
    "macros": [
        "{% macro m(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
        "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}<{{ a }}>{{ caller() }}{% endmacro %}{% call m(1) %}in{{ n }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=5) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
        "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}|", "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
        "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x | trim }}{% endmacro %}{{ m(' a ') ~ m(' b ') | length }}", "{% macro m() %}a{% endmacro %}{{ m() | upper }}{{ m is callable }}{{ m.name }}", "{% macro m(a, *b) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% set ns = namespace(r='') %}{% macro add(x) %}{% set ns.r = ns.r ~ x %}{% endmacro %}{{ add('a') }}{{ add('b') }}{{ ns.r }}", "{% macro m(l) %}{% for x in l %}{% if x is iterable and x is not string %}({{ m(x) }}){% else %}{{ x }}{% endif %}{% endfor %}{% endmacro %}{{ m([1, [2, [3, 4]], 5]) }}",
        "{{ m(*[1, 2]) }}{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}",
    ],
    "filters": [
        "{{ missing | default('x') }} {{ z | default('x') }}| {{ z | default('x', true) }} {{ none | d('x') }} {{ none | default('x', boolean=true) }} {{ missing | default }}|", "{{ ' a ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ '\u00a0\u3000a\u2003\x1c' | trim }}|", "{{ 'aBc dEf' | upper }} {{ 'aBc ÄÖ' | lower }} {{ 'aBc dEf' | capitalize }} {{ 'a-b c(d it\\'s' | title }} {{ 'straße' | upper }}",
        "{{ [1, 2, 3] | length }} {{ 'Grüße' | length }} {{ d | count }} {{ missing | length }}", "{{ none | length }}", "{{ 5 | length }}", "{{ words | join(', ') }} {{ [1, none, 'a'] | join('-') }} {{ messages | join('|', attribute='role') }} {{ 'abc' | join('.') }} {{ missing | join }}|", "{{ words | first }} {{ words | last }} {{ [] | first }}| {{ 'abc' | last }} {{ missing | first }}|",
        "{{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }}", "{{ [1, 'a'] | sort }}", "{{ words | unique | list }} {{ [1, 1.0, 2, true] | unique | list }}", "{{ words | reverse | list }} {{ 'abc' | reverse }}", "{{ d | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'B': 2, 'a': 0} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}", "{{ d | items | list }} {{ missing | items | list }}", "{{ [1] | items | list }}",
        "{{ words | map('upper') | list }} {{ messages | map(attribute='role') | join(',') }} {{ [{'a': 1}, {}] | map(attribute='a', default='-') | list }} {{ [{'a': {'b': 5}}] | map(attribute='a.b') | list }} {{ words | map('replace', 'p', 'q') | list }}", "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }} {{ [{'a': 1}, {'a': 0}, {}] | selectattr('a') | list }} {{ [{'a': 1}, {}] | selectattr('a', 'defined') | list }} {{ [0, 1, 2, 3] | select('odd') | list }} {{ [0, 1, none, ''] | select | list }} {{ [0, 1, none] | reject('none') | list }}",
        "{{ (messages | selectattr('role', 'equalto', 'nobody')) is defined }}{% if messages | selectattr('role', 'equalto', 'nobody') %}yes{% endif %}", "{{ (messages | selectattr('role', 'equalto', 'user')) | length }}", "{{ none | selectattr('a') | list }} {{ none | map('upper') | list }}", "{{ none | list }}", "{{ 'abc' | list }} {{ d | list }} {{ (1, 2) | list }}", "{{ 'a.b.c' | replace('.', '-') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'ab' | replace('', '.') }} {{ 123 | replace('2', 'x') }}",
        "{{ 'a\\nb\\n\\nc' | indent }}| {{ 'a\\nb' | indent(2, true) }} {{ 'a\\n\\nb' | indent(1, blank=true) }} {{ 'a\\nb' | indent('> ') }} {{ 'a\\n' | indent }}|", "{{ 5 | indent }}", "{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ '0x1f' | int(base=16) }} {{ none | int }} {{ true | int }} {{ ' 12 ' | int }} {{ '-5' | int }} {{ [] | int(3) }}", "{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }} {{ '1e3' | float }}", "{{ missing | int }}",
        "{{ -5 | abs }} {{ (-2.5) | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ 1234.5 | round(-2) }} {{ 7 | round }}", "{{ [1, 2, 3] | sum }} {{ [{'a': 1}, {'a': 2.5}] | sum(attribute='a') }} {{ [1] | sum(start=10) }} {{ [[1], [2]] | sum(start=[]) }}", "{{ words | min }} {{ words | max }} {{ [3, 1, 2] | max }} {{ [] | min }}| {{ messages | max(attribute='role') }}", "{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }} {{ [1, 2, 3, 4, 5] | slice(2) | list }} {{ [1, 2, 3, 4, 5] | slice(3, 'x') | list }}",
        "{{ 1 | string + 'a' }} {{ none | string }} {{ [1] | string }} {{ '<a>' | safe }} {{ 'a' | center(5) }}|", "{{ '<a href=\"x\">\\'&' | e }}", "{{ '%s-%d' | format('a', 5) }} {{ '%(a)s' | format(a=1) }}", "{{ 'x' | nothing }}", "{% if z %}{{ 'x' | nothing }}{% endif %}ok", "{{ d | attr('b') }}| {{ 'a' | attr('upper') is defined }}", "{{ 'abc' | upper | lower | title }} {{ 'a' | default('b') | upper }} {{ -1 | abs }} {{ not 'a' | length }} {{ 1 + '2' | int }} {{ ('a' ~ 'b') | upper }}", "{{ 'x' | trim(1, 2) }}", "{{ 'x' | replace('a') }}",
    ],
    "tojson": [
        "{{ d | tojson }} {{ messages | tojson }} {{ [] | tojson }} {{ {} | tojson }} {{ none | tojson }} {{ 'é\"\\n\\\\</>&\\x01\\x7f' | tojson }} {{ 1.0 | tojson }} {{ (1, 2) | tojson }}", "{{ d | tojson(indent=2) }} {{ [] | tojson(indent=4) }} {{ [1, [2, {}]] | tojson(indent=1) }}", "{{ 'é世😀' | tojson(ensure_ascii=true) }}", "{{ {'a': [1, 2]} | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true) }} {{ {1: 'a', none: 2, true: 3, 1.5: 4} | tojson }}", "{{ missing | tojson }}", "{{ [missing] | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ [1] | tojson(indent='--') }} {{ [1] | tojson(indent=0) }} {{ [1,2] | tojson(indent=none) }} {{ [1, {'a': 2}] | tojson(indent=2, separators=(', ', ' = ')) }}", "{{ 'a' | tojson(true) }} {{ {'é': 'é'} | tojson(true, 1) }}",
    ],
    "tests": [
        "{{ 1 is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.nothing is defined }} {{ none is none }} {{ missing is none }} {{ none is not none }}", "{{ 'a' is string }} {{ 1 is string }} {{ missing is string }} {{ d is mapping }} {{ [] is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ [] is sequence }} {{ 'a' is sequence }} {{ d is sequence }} {{ d.keys() is sequence }} {{ missing is sequence }}",
        "{{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ 1 is number }} {{ true is number }} {{ 1.5 is float }} {{ 1 is integer }} {{ true is integer }} {{ '1' is number }}", "{{ 3 is odd }} {{ 3 is even }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 is in [1] }} {{ 3 is gt(2) }} {{ 'a' is equalto 'a' }} {{ 2 is lessthan 3 }}",
        "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ '1' is upper }} {{ none is sameas none }} {{ 1 is sameas true }} {{ range is callable }} {{ 'a' is callable }} {{ missing is callable }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 'zz' is filter }}", "{{ 'a' is odd }}", "{{ 1 is nothing }}", "{{ 1 is divisibleby }}", "{{ 1 is defined is defined }}", "{{ n is defined and n > 5 }} {{ not n is defined }} {{ n is not defined or t }} {{ 'x' if n is defined else 'y' }} {{ n is defined ~ 'a' }} {{ 1 + 1 is odd }}", "{{ tools is not none and tools is iterable }} {{ (messages[0].role == 'system') is true }}",
    ],
    "text methods": [
        "{{ ' ab '.strip() }}| {{ ' ab '.lstrip() }}| {{ ' ab '.rstrip() }}| {{ 'xyabyx'.strip('xy') }} {{ '\\n\\na'.lstrip('\\n') }} {{ 'äaä'.strip('ä') }} {{ 'a'.strip(none) }}", "{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'a</t>b</t>c'.split('</t>')[-1] }} {{ 'aXbXc'.split(sep='X', maxsplit=1) }}", "{{ 'a'.split('') }}", "{{ 'a\\nb\\r\\nc\\x0bd\\u2028e'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}",
        "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ ''.startswith('') }}", "{{ 'abc'.startswith(1) }}", "{{ 'abc'.startswith(missing) }}", "{{ 'abcabc'.find('c') }} {{ 'abc'.find('x') }} {{ 'abcabc'.rfind('c') }} {{ 'Grüße'.find('ß') }} {{ 'abcabc'.find('a', 1) }} {{ 'aaa'.count('a') }} {{ 'aaa'.count('') }} {{ 'abc'.index('b') }}", "{{ 'abc'.index('x') }}", "{{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '', 1) }} {{ 'ab'.replace('', '.') }}",
        "{{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ 'aBc dE'.title() }} {{ 'aBc'.capitalize() }} {{ 'aBc'.swapcase() }} {{ \"they're bill's\".title() }}", "{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'aB'.islower() }} {{ ''.isalpha() }} {{ 'é'.isalpha() }}", "{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }}", "{{ ', '.join([1]) }}", "{{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '*') }} {{ 'ab'.center(5, '-') }} {{ 'abc'.center(6, '-') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }}", "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}",
        "{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:x} {:.2f} {:5.1f} {:e} {:%}'.format(42, 255, 3.14159, 2.5, 1000.0, 0.25) }} {{ '{!r}'.format('a') }} {{ '{:+d} {: d} {:.3}'.format(5, 6, 'abcdef') }}", "{{ '{}'.format() }}", "{{ '{'.format(1) }}", "{{ '{:d}'.format('a') }}", "{{ 'abc'.nothing }}|", "{{ 'abc'.nothing() }}", "{{ 'abc'.upper is defined }}", "{{ 'a'.__class__ }}|",
    ],
    "functions": [
        "{{ raise_exception('no tools: ' ~ n) }}", "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %j') }} {{ strftime_now('') }}|", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([['k', 'v']]) }}", "{{ range(2) is defined }} {{ strftime_now is defined }} {{ raise_exception is defined }} {{ nothing_such is defined }}", "{{ namespace is callable }}", "{{ range() }}", "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ dict(1) }}",
        "{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' %}{% endif %}{{ date_string }}",
    ],
    "whole templates": [
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}",
        "{%- for m in messages %}\n    {%- if m.role == 'assistant' and '</think>' in m.content %}\n        {%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}\n    {%- else %}\n        {%- set content = m.content %}\n    {%- endif %}\n{{- '<|' + m.role + '|>\\n' + content + '<|end|>\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|assistant|>\\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false %}\n        {{- '<think></think>' }}\n    {%- endif %}\n{%- endif %}\n",
        "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string %}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n{{ ns.last_query_index }}",
        "{%- if tools is defined and tools %}has tools{% else %}{{ messages[0]['content'] | trim if messages[0]['role'] == 'system' else '' }}{% endif %}",
    ],
}


def main():
    groups = {}
    for group, templates in CASES.items():
        groups[group] = []
        for template in templates:
            text, _ = jinja_oracle.render(template, VARIABLES)
            groups[group].append({"template": template, "text": text})
    made = {"made_by": f"tests/tokenizer/make_jinja_cases.py with jinja2 {jinja2.__version__}",
            "variables": VARIABLES, "groups": groups}
    path = pathlib.Path(__file__).resolve().parent.parent / "data" / "jinja_cases.json"
    path.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    n = sum(len(cases) for cases in groups.values())
    refused = sum(case["text"] is None for cases in groups.values() for case in cases)
    print(f"{path}: {n} cases, {refused} of them refused")


if __name__ == "__main__":
    main()
