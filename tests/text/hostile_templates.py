# ruff: noqa: E501
"""Chat templates that are bombs or try to leave the sandbox, by name; `{n}` variants are generated."""

GROW = "{{% set ns = namespace(a={start}) %}}{{% for i in range(60) %}}{{% set ns.a = {step} %}}{{% endfor %}}{{{{ {end} }}}}"
STEPS = {
    "tilde": ("'ab'", "ns.a ~ ns.a", "ns.a | length"),
    "plus": ("'ab'", "ns.a + ns.a", "ns.a | length"),
    "join": ("'ab'", "[ns.a, ns.a] | join", "ns.a | length"),
    "join separator": ("'ab'", "'xx' | list | join(ns.a)", "ns.a | length"),
    "replace": ("'ab'", "ns.a | replace('a', 'aa')", "ns.a | length"),
    "replace method": ("'ab'", "ns.a.replace('a', 'aaaa')", "ns.a | length"),
    "format": ("'ab'", "'%s%s' | format(ns.a, ns.a)", "ns.a | length"),
    "format method": ("'ab'", "'{0}{0}'.format(ns.a)", "ns.a | length"),
    "lists": ("[1]", "ns.a + ns.a", "ns.a | length"),
    "nested list": ("[1]", "[ns.a, ns.a]", "ns.a"),
    "nested list as JSON": ("[1]", "[ns.a, ns.a]", "ns.a | tojson"),
    "nested list compared": ("[1]", "[ns.a, ns.a]", "ns.a == [ns.a[0], ns.a[1]] | list"),
    "nested dict": ("{}", "{'a': ns.a, 'b': ns.a}", "ns.a"),
    "nested dict as JSON": ("{}", "{'a': ns.a, 'b': ns.a}", "ns.a | tojson(indent=4)"),
    "pretty print": ("[1]", "[ns.a, ns.a]", "ns.a | pprint"),
    "namespaces": ("1", "namespace(a=ns.a, b=ns.a)", "ns.a"),
    "square": ("99", "ns.a * ns.a", "ns.a"),
    "escape": ("'<'", "ns.a | escape | string | escape | string ~ ns.a", "ns.a | length"),
    "urlencode": ("'%'", "(ns.a | urlencode) ~ ns.a", "ns.a | length"),
    "indent": ("'a\\n'", "(ns.a ~ ns.a) | indent(9)", "ns.a | length"),
    "wordwrap": ("'a b '", "(ns.a ~ ns.a) | wordwrap(1)", "ns.a | length"),
    "slices": ("'ab'", "ns.a[:] ~ ns.a[::-1]", "ns.a | length"),
    "title": ("'ab'", "ns.a.title() ~ ns.a.upper()", "ns.a | length"),
    "sum": ("[1]", "[ns.a, ns.a] | sum(start=[])", "ns.a | length"),
}
LOOPS = {
    f"{depth} loops of {what} {inside}".strip(): "".join(f"{{% for i{k} in {what} %}}" for k in range(depth))
    + inside
    + "{% endfor %}" * depth
    for depth, what, inside in (
        (2, "range(99999)", ""), (3, "range(9999)", ""), (4, "range(999)", ""), (6, "range(99)", ""),
        (9, "range(20)", ""), (30, "[0, 1]", ""), (15, "'abcdefgh'", ""), (8, "messages * 50", ""),
        (2, "range(99999)", "{% set x = i0 %}"), (2, "range(99999)", "aaaaaaaaaaaa"),
        (2, "('a' * 99999)", "{{ i0 }}"), (3, "range(9999)", "{% continue %}"), (9, "lipsum(n=20)", ""),
        (4, "(range(999) | list | reverse)", ""), (3, "range(999) | map('string')", "{% if i0 %}{% endif %}"),
    )
}  # fmt: skip
SIZES = {
    f"{name} of {size}": text.replace("SIZE", str(size))
    for size in (400_000_000, 4_000_000_000)
    for name, text in {
        "zfill": "{{ '1'.zfill(SIZE) }}",
        "center": "{{ 'a' | center(SIZE) }}",
        "center method": "{{ 'a'.center(SIZE) | length }}",
        "ljust": "{{ 'a'.ljust(SIZE) | length }}",
        "rjust": "{{ 'a'.rjust(SIZE) | length }}",
        "format width": "{{ '{:>SIZE}'.format(1) | length }}",
        "format filter": "{{ '%SIZEd' | format(1) | length }}",
        "expandtabs": "{{ '\t'.expandtabs(SIZE) | length }}",
        "indent": "{{ 'a\nb' | indent(SIZE) | length }}",
        "JSON indent": "{{ [1] | tojson(indent=SIZE) | length }}",
        "range": "{{ range(SIZE) | list | length }}",
        "range sum": "{{ range(SIZE) | sum }}",
        "lipsum": "{{ lipsum(n=SIZE) | length }}",
        "batch": "{{ [1] | batch(SIZE, 0) | list | length }}",
        "slice": "{{ [1] | slice(SIZE) | list | length }}",
        "repeat": "{{ 'a' * SIZE }}",
        "repeat list": "{{ [1] * SIZE }}",
        "repeat tuple": "{{ (SIZE * (1, 2)) | length }}",
        "to_bytes": "{{ (1).to_bytes(SIZE, 'big') | length }}",
        "round": "{{ 1.5 | round(SIZE) }}",
        "shift by power": "{{ 2 ** SIZE }}",
        "date": "{{ strftime_now('%SIZEd') | length }}",
    }.items()
}
ESCAPES = {
    f"escape {n}": text
    for n, text in enumerate([
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__.__subclasses__()[0] }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ raise_exception.__globals__.__builtins__.open('/tmp/multihead-escape', 'w') }}",
        "{{ strftime_now.__code__.co_consts[0].x }}",
        "{{ cycler.__init__.__globals__.os.system('touch /tmp/multihead-escape') }}",
        "{{ joiner.__init__.__globals__.os.popen('touch /tmp/multihead-escape').read() }}",
        "{{ lipsum.__globals__['os'].system('touch /tmp/multihead-escape') }}",
        "{{ namespace.__init__.__globals__['sys'].modules['os'].system('touch /tmp/multihead-escape') }}",
        "{{ (''|attr('__class__'))|attr('__mro__')|list }}",
        "{{ [''] | map(attribute='__class__') | map(attribute='__mro__') | list | first | length + '' }}",
        "{{ '{0.__class__.__mro__}'.format('')[9] + 1 }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(cycler)[9] + 1 }}",
        "{{ self.__init__.__globals__.x }}",
        "{{ self._TemplateReference__context.environment.x }}",
        "{{ url_for.__globals__.x }}",
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as p %}",
        "{% extends '/etc/passwd' %}",
        "{% from 'os' import system %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ messages.sort() }}",
        "{{ messages[0].clear() }}",
    ])
}  # fmt: skip
RECURSION = {
    "macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "macro twice": "{% macro f(x) %}{% if x %}{{ f(x - 1) }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "macros in turn": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "caller": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}" + "{% call f() %}" * 60 + "x" + "{% endcall %}" * 60,
    "loop": "{% for i in [[[]]] recursive %}{{ loop([i]) }}{% endfor %}",
    "loop twice": "{% for i in [40] recursive %}{% if i %}{{ loop([i - 1, i - 1]) }}{% endif %}{% endfor %}",
    "block": "{% block a %}{{ self.a() }}{% endblock %}",
    "block twice": "{% set n = 0 %}{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "brackets": "{{ " + "(" * 20_000,
    "lists": "{{ " + "[" * 900 + "]" * 900 + " }}",
    "ifs": "{% if 1 %}" * 5_000 + "{% endif %}" * 5_000,
    "minus": "{{ " + "-" * 50_000 + "1 }}",
    "nots": "{{ " + "not " * 50_000 + "1 }}",
    "filters": "{{ 1" + " | string" * 20_000 + " }}",
    "attributes": "{{ a" + ".a" * 20_000 + " }}",
    "towers": "{{ 9 ** 9 ** 9 }}",
    "factorial": "{% set ns = namespace(a=1) %}{% for i in range(1, 99999) %}{% set ns.a = ns.a * i %}{% endfor %}{{ ns.a }}",
    "set block": "{% set a %}x{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60 + "{{ a | length }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "sort": "{% for i in range(99999) %}{{ range(99999) | sort | first }}{% endfor %}",
    "group": "{% for i in range(99999) %}{{ range(99999) | groupby('real') | first }}{% endfor %}",
    "count": "{% for i in range(99999) %}{{ ('a' * 3999999).count('aaaab') }}{% endfor %}",
    "find": "{{ ('a' * 3999999).find('a' * 1999999 ~ 'b' ~ 'a' * 1999999) }}{{ 'a' * 4000000 }}x",
    "raise": "{{ raise_exception('no system role') }}",
    "raise at length": "{{ raise_exception('x' * 4000000) }}",
    "syntax": "{% for %}",
    "missing": "{{ messages[9].content.x }}",
    "zero": "{{ 1 // 0 }}",
    "surrogate": "{{ '\ud800'.encode('ascii') }}",
}  # fmt: skip
HOSTILE = {
    **{f"grow by {name}": GROW.format(start=start, step=step, end=end) for name, (start, step, end) in STEPS.items()},
    **LOOPS, **SIZES, **ESCAPES, **RECURSION,
}  # fmt: skip
