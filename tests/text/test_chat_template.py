# ruff: noqa: E501
"""Chat templates: public ones give what transformers gives; hostile ones are an error or a short text, and soon."""

import importlib.util
import json
import multiprocessing
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from multihead.tasks.chat import encode_conversation
from multihead.text.chat_template import render
from multihead.text.tokenizer import Tokenizer

SPEC = importlib.util.spec_from_file_location("hostile_templates", Path(__file__).parent / "hostile_templates.py")
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
HOSTILE: dict[str, str] = MODULE.HOSTILE
QUICK = (
    "grow by tilde", "grow by nested list as JSON", "2 loops of range(99999)", "zfill of 4000000000",
    "date of 4000000000", "format width of 400000000", "macro twice", "brackets", "escape 5", "escape 16",
)  # fmt: skip
ESCAPED = Path("/tmp/multihead-escape")
TALK = [
    {"role": "user", "content": " Hello 北京 "},
    {"role": "assistant", "content": "Hi <b>&</b>\n"},
    {"role": "user", "content": "And \ud83d\ude00? {{ 1 }}".encode("utf-16", "surrogatepass").decode("utf-16")},
]
PUBLIC = {
    "ChatML": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
    " + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "SmolLM2": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system"
    "\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
    "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}",
    "Llama 2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
    "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "Llama 3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>'"
    " + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "Gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + "
    "'<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "Mistral": "{%- set ns = namespace(index=0) %}\n{{- bos_token }}\n{%- for message in messages %}\n    {%- if "
    "message['role'] == 'user' %}\n        {{- '[INST] ' + message['content'] + ' [/INST]' }}\n        {%- set ns.index = "
    "ns.index + 1 %}\n    {%- elif message.role == 'assistant' %}\n        {{- ' ' ~ message.content | trim ~ eos_token }}\n"
    "    {%- else %}\n        {{- raise_exception('Only user and assistant roles are supported!') }}\n    {%- endif %}\n"
    "{%- endfor %}\n",
    "Qwen2.5": "{%- if tools %}\n    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}\n    {%- for tool in tools %}\n"
    '        {{- "\\n" }}\n        {{- tool | tojson }}\n    {%- endfor %}\n    {{- "\\n</tools><|im_end|>\\n" }}\n'
    "{%- else %}\n    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    '<|im_end|>\\n\' }}\n{%- endif %}\n{%- for message in messages %}\n    {%- if (message.role == "user") or '
    "(message.role == \"assistant\" and not message.tool_calls) %}\n        {{- '<|im_start|>' + message.role + '\\n' + "
    "message.content + '<|im_end|>' + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "DeepSeek": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = "
    "namespace(is_first=false, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}"
    "{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}{{'<｜User｜>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + "
    "eos_token}}{%- endif %}{%- endfor -%}{% if add_generation_prompt %}{{'<｜Assistant｜>'}}{% endif %}",
}
VALUES = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"city": "北京 <b>"}}}]


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("prompt", [True, False])
def test_public_templates_equal_transformers(name: str, prompt: bool) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    for tools in (None, TOOLS):
        theirs = utils.render_jinja_template(
            [TALK], tools=tools, chat_template=PUBLIC[name], add_generation_prompt=prompt, **VALUES
        )
        wanted = theirs[0][0] if isinstance(theirs, tuple) else theirs[0]
        assert render(PUBLIC[name], TALK, add_generation_prompt=prompt, tools=tools, **VALUES) == wanted


def bounded(template: str) -> None:
    """An error of one line or a bounded text, in time and memory, and nothing was executed."""
    start = time.monotonic()
    try:
        text = render(template, [{"role": "user", "content": "x"}])
    except ValueError as error:
        text, reason = "", str(error)
    else:
        reason = ""
    assert not reason or reason.startswith("the chat template ")
    assert "\n" not in reason
    assert len(reason) < 500
    assert len(text) <= 4_000_000
    assert time.monotonic() - start < 10
    assert not ESCAPED.exists()


@pytest.mark.parametrize("name", QUICK)
def test_hostile_templates_are_bounded(name: str) -> None:
    bounded(HOSTILE[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(HOSTILE) - set(QUICK)))
def test_every_hostile_template_is_bounded(name: str) -> None:
    bounded(HOSTILE[name])


def test_there_are_many_hostile_templates_and_children_stay_small() -> None:
    assert len(HOSTILE) >= 100
    program = (  # in a process of its own, whose children are those that render
        "import resource, sys\nfrom multihead.text.chat_template import render\n"
        "for template in sys.argv[1:]:\n    try: render(template, [])\n    except ValueError: pass\n"
        "assert render('ok', []) == 'ok', 'the next one is rendered'\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    hostile = [HOSTILE["center method of 4000000000"], HOSTILE["grow by plus"]]
    done = subprocess.run([sys.executable, "-c", program, *hostile], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 << 20  # KiB


NAIVE = """
import resource, sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
ImmutableSandboxedEnvironment().from_string(sys.argv[1]).render(messages=[])
"""


@pytest.mark.parametrize("name", ["3 loops of range(9999)", "zfill of 4000000000"])
def test_the_plain_sandbox_bounds_neither_time_nor_memory(name: str) -> None:
    """The control: what `test_hostile_templates_are_bounded` would see without limits."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", NAIVE, HOSTILE[name]], timeout=6, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return
    assert "MemoryError" in child.stderr


def test_threads_and_forks_do_not_get_the_answers_of_others() -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        asked = [f"{number}-{i}" for i in range(50)]
        wrong.extend(one for one in asked if render("{{ messages[0] }}", [one]) != one)  # type: ignore[list-item]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers: list[Any] = pool.starmap(render, [("{{ messages[0] }}", [str(i)]) for i in range(40)])
    assert answers == [str(i) for i in range(40)]
    assert render("{{ messages[0] }}", ["after"]) == "after"  # type: ignore[list-item]


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_errors_name_the_file_that_holds_the_template(file: str, tmp_path: Path) -> None:
    template = "{{ raise_exception('no system role') }}"
    Tokenizer.train(["the cat"], "wordpiece", 40).save(tmp_path)
    if file.endswith(".jinja"):
        (tmp_path / file).write_text(template)
    else:
        config = json.loads((tmp_path / file).read_text())
        (tmp_path / file).write_text(json.dumps({**config, "chat_template": template}))
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))) as caught:
        Tokenizer.load(tmp_path).chat([{"role": "system", "content": "x"}])
    assert str(caught.value).startswith(f"{tmp_path / file}: ")
    assert str(caught.value).count(str(tmp_path)) == 1
    assert "the chat template rejects these messages: no system role" in str(caught.value)


def test_a_template_that_changes_what_was_said_is_named_by_its_file(tmp_path: Path) -> None:
    Tokenizer.train(["the cat"], "wordpiece", 40).save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages | length }}{{ messages[-1].content }}")
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))) as caught:
        encode_conversation(Tokenizer.load(tmp_path), talk, [3], False, 100)
    assert str(caught.value).startswith(f"{tmp_path / 'chat_template.jinja'}: message 2 (assistant) ")
