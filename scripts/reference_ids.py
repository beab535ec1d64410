#!/usr/bin/env python3
"""Writes the token ids that our named chat templates must give, for tests to compare with.

    reference_ids.py src/chat/templates tests/data/reference_ids.json      (needs jinja2)

Another implementation of the rules of "Text and control tokens": text of a special token that comes from a
message is hidden behind one private-use character before rendering and put back after the split, so no
mark is ever cut into a text here. The vocabulary is bytes 0..255, then the template's specials from 256 on.
"""

import json
import re
import sys
from datetime import datetime
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# The rules, shared with reference_real_ids.py


def compile_template(source):
    """A chat template, compiled with the settings and functions that transformers gives it."""

    def raise_exception(message):
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def alternatives(texts):
    """Matches any of the texts, the longest first."""
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


class Reference:
    """One template over one vocabulary: `specials` is {text: id}, `tokenise` makes ids of plain text."""

    def __init__(self, source, specials, bos, eos, add_bos, tokenise):
        self.template = compile_template(source)
        self.specials = specials
        self.special = alternatives(specials)
        self.bos, self.eos, self.add_bos = bos, eos, add_bos
        self.tokenise = tokenise

    def ids(self, conversation):
        ids, controls = self.encode(conversation)
        neutral = neutralised(conversation)
        assert controls == self.encode(neutral)[1], f"{conversation['name']}: a message changed the control tokens"
        return ids

    def encode(self, conversation):
        hidden, shown = self.hide(conversation)
        rendered = self.render(hidden)
        ids, controls, end = [], [], 0
        for match in self.special.finditer(rendered):
            ids += self.tokenise(self.show(rendered[end : match.start()], shown))
            ids.append(self.specials[match.group()])
            controls.append(match.group())
            end = match.end()
        ids += self.tokenise(self.show(rendered[end:], shown))
        if self.add_bos and ids[:1] != [self.bos]:
            ids.insert(0, self.bos)
        return ids, controls

    def hide(self, conversation):
        """The conversation with each special text made one private-use character, and what those stand for."""
        written = json.dumps(conversation, ensure_ascii=False)
        unused = (chr(code) for code in range(0xF0000, 0xFFFFE) if chr(code) not in written)
        mark = dict(zip(self.specials, unused))
        hidden = on_texts(conversation, lambda text: self.special.sub(lambda match: mark[match.group()], text))
        return hidden, {character: text for text, character in mark.items()}

    @staticmethod
    def show(text, shown):
        return "".join(shown.get(character, character) for character in text)

    def render(self, conversation):
        by_id = {id: text for text, id in self.specials.items()}
        variables = {
            "bos_token": by_id.get(self.bos, ""),
            "eos_token": by_id.get(self.eos, ""),
            "add_generation_prompt": True,
        }
        if "enable_thinking" in conversation:
            variables["enable_thinking"] = conversation["enable_thinking"]
        messages, system = conversation["messages"], conversation["system"]
        if system is None:
            return self.template.render(messages=messages, **variables)
        try:
            return self.template.render(messages=[{"role": "system", "content": system}, *messages], **variables)
        except TemplateError:
            folded = system + "\n\n" if system else ""
            first = {**messages[0], "content": folded + messages[0]["content"]}
            return self.template.render(messages=[first, *messages[1:]], **variables)


def on_texts(conversation, change):
    """The conversation with every text that is not the template's put through `change`."""
    changed = dict(conversation)
    if conversation["system"] is not None:
        changed["system"] = change(conversation["system"])
    changed["messages"] = [
        {key: text if key == "role" else change(text) for key, text in message.items()}
        for message in conversation["messages"]
    ]
    return changed


def neutralised(conversation):
    """The same turns with nothing in them that could look like a token; a tool's reply stays one."""
    tool = alternatives(["<tool_response>", "</tool_response>"])
    return on_texts(conversation, lambda text: text if tool.match(text) else re.sub(r"[<>|\[\]]", "x", text))


def chat(name, *turns, system=None, **more):
    """A conversation, the user first; a turn is a text, or a pair of thoughts and text."""
    messages = []
    for index, turn in enumerate(turns):
        message = {"role": ["user", "assistant"][index % 2]}
        if isinstance(turn, tuple):
            message["reasoning_content"], turn = turn
        messages.append({**message, "content": turn})
    return {"name": name, "system": system, "messages": messages, **more}


def one_line_each(entry):
    """JSON of an entry with a line a conversation, so that a diff shows which one changed."""
    head = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items() if key != "conversations")
    lines = ",\n".join("  " + json.dumps(conversation) for conversation in entry["conversations"])
    return f'{{{head}, "conversations": [\n{lines}\n]}}'


def write(path, entries):
    Path(path).write_text("[\n" + ",\n".join(map(one_line_each, entries)) + "\n]\n", encoding="ascii")


# The templates and their conversations

TEMPLATES = {
    # name: (specials, bos, eos, add_bos)
    "chatml": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", False),
    "llama3": (
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "<|begin_of_text|>",
        "<|eot_id|>",
        True,
    ),
    "gemma": (["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>", True),
    "mistral": (["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>", True),
    "phi3": (
        ["<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
        "<s>",
        "<|endoftext|>",
        True,
    ),
    "phi4": (["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_sep|>"], "<|endoftext|>", "<|im_end|>", False),
    "qwen3": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        "<|endoftext|>",
        "<|im_end|>",
        False,
    ),
}
USER_DEFINED = {"<think>", "</think>"}


def conversations(specials):
    every = " and ".join(specials)
    broken = [special[: len(special) // 2] + special + special[len(special) // 2 :] for special in specials]
    return [
        chat("single user turn", "Hello, who are you?"),
        chat("system", "Hello", system="You are terse."),
        chat("three turns", "What is 2 + 2?", "It is 4.", "And twice that?"),
        chat("three turns with system", "What is 2 + 2?", "It is 4.", "And twice that?", system="Do sums."),
        chat("Chinese and emoji", "你好，世界！👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇨🇳", "你好 😀", "再见", system="用中文回答。"),
        chat("spaces and line ends around", "  \n\t Hi there \r\n\n ", "\n  Hello!  \n", "\u3000\n Bye \u00a0", system=" \nBe kind.\n "),
        chat("blank message", " \n ", "", "still there?"),
        chat("empty system", "Hello", system=""),
        chat("special texts", every, every, "".join(specials), system=every),
        chat("special texts alone", *specials, *specials[: len(specials) % 2 ^ 1]),
        chat("half special texts", "<|im_ and im_end|> and <|", "<| im_end |>", "[INST <s </s <|im_end|", system="<|im_"),
        chat("half at the edges", "|>", "<", "<|", system="<|im_start|"),
        chat("nested special texts", "<|im_<|im_end|>end|>", "<<s>s> [IN[INST]ST] <th<think>ink>", "".join(broken)),
        chat("other models' special texts", "<s>", "</s>", "[INST] [/INST] <|im_end|> <|eot_id|> <end_of_turn> <|end|>"),
        chat("template syntax", "{{ 7*7 }} {% raw %} {# no #}", "{% endraw %}{{ messages }}", "{{ bos_token }}", system="{{ eos_token }}"),
        chat("private-use characters", "\ue000 \ue001<|im_end|>\uf8ff \U000f0000 \U0010fffd <s>", "\ue000", "\ue000</s>\ue000"),
    ]


def qwen3_conversations():
    thoughts = "They greet.\nI greet back."
    return [
        chat("thoughts of an earlier turn dropped", "Hello", (thoughts, "Hi!"), "How are you?"),
        chat("empty thoughts", "Hello", ("", "Hi!"), "How are you?"),
        chat("thoughts written in the content stay text", "Hello", "<think>\nHm.\n</think>\n\nHi!", "How are you?"),
        chat("thoughts kept before a tool's reply", "Sum?", (thoughts, "Call."), "<tool_response>\n4\n</tool_response>"),
        chat(
            "special texts in kept thoughts",
            "Sum?",
            ("\n</think> <|im_end|> <thi<think>nk>\n", "\n\nCall </think>."),
            "<tool_response>\n<|im_end|></think>\n</tool_response>",
        ),
        chat("no thinking", "Hello", enable_thinking=False),
        chat("no thinking after thoughts", "Hello", (thoughts, "Hi!"), "<think>", system="Short.", enable_thinking=False),
        chat("thinking asked for", "Hello", enable_thinking=True),
    ]


def main(templates, out):
    entries = []
    for name, (specials, bos, eos, add_bos) in TEMPLATES.items():
        source = (Path(templates) / f"{name}.jinja").read_text(encoding="utf-8")
        ids = {text: 256 + index for index, text in enumerate(specials)}
        reference = Reference(source, ids, ids.get(bos), ids[eos], add_bos, lambda text: list(text.encode("utf-8")))
        chats = conversations(specials) + (qwen3_conversations() if name == "qwen3" else [])
        entries.append({
            "template": name,
            "specials": [{"text": text, "kind": "user_defined" if text in USER_DEFINED else "control"} for text in specials],
            "bos": reference.bos,
            "eos": reference.eos,
            "add_bos": add_bos,
            "conversations": [{**each, "ids": reference.ids(each)} for each in chats],
        })
    write(out, entries)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
