import pytest
from tokenizers import AddedToken
from toys import PROBE, Drawers, template

from truthfirst.policies.calls import Call
from truthfirst.policies.chat import ChatFormat, ProtocolError
from truthfirst.policies.clockwork import END, byte_tokenizer
from truthfirst.policies.dialogue import Reply

SMOL = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
    "You are helpful<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tokenizer_with(chat_template: str | None, *special: str):
    tokenizer = byte_tokenizer(chat_template or "")
    tokenizer.bos_token = "<|im_start|>"
    tokenizer.chat_template = chat_template
    tokenizer.add_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


@pytest.mark.parametrize(
    ("name", "family", "end"),
    [
        ("qwen2_5", "hermes", "<|im_end|>"),
        ("qwen2_5_training", "hermes", "<|im_end|>"),
        ("qwen3", "hermes", "<|im_end|>"),
        ("qwen3_instruct_2507", "hermes", "<|im_end|>"),
        ("qwen3_5_nothink", "xml", "<|im_end|>"),
        ("llama3_1", "llama3", "<|eot_id|>"),
        ("llama3", "text", "<|eot_id|>"),
        ("gemma", "text", "<end_of_turn>"),
    ],
)
def test_what_a_template_supports_is_found_by_rendering(name: str, family: str, end: str) -> None:
    tokenizer = tokenizer_with(template(name), "<|eot_id|>", "<end_of_turn>", "<start_of_turn>")
    chat = ChatFormat(tokenizer)
    assert chat.family == family
    assert tokenizer.convert_ids_to_tokens(chat.end_id) == end
    assert (chat.reason is None) == (family != "text")


def test_a_template_without_tools_gets_the_text_protocol_and_says_why() -> None:
    chat = ChatFormat(tokenizer_with(SMOL))
    assert chat.family == "text"
    assert chat.reason == "the template does not show the tools"
    opening = chat.tokenizer.decode(chat.opening(Drawers().view))
    assert "CALL probe" in opening
    assert "You read items." in opening
    assert opening.endswith("<|im_start|>assistant\n")
    with pytest.raises(ProtocolError, match="protocol='text'"):
        ChatFormat(tokenizer_with(SMOL), "tools")


def test_a_tokenizer_without_template_and_a_template_without_system_role_still_carry_the_instructions() -> (
    None
):
    for chat_template in (None, NO_SYSTEM):
        chat = ChatFormat(tokenizer_with(chat_template))
        text = chat.tokenizer.decode(chat.opening(Drawers().view))
        assert chat.family == "text"
        assert "You read items." in text
        assert "Begin." in text
        assert "CALL probe" in text


def test_a_template_that_drops_users_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="drops a reply"):
        ChatFormat(tokenizer_with("{% for m in messages %}{{ m['role'] }}<|im_end|>{% endfor %}"))


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "llama3_1"])
def test_the_piece_between_messages_is_what_the_template_itself_would_put_there(name: str) -> None:
    tokenizer = tokenizer_with(template(name), "<|eot_id|>")
    chat = ChatFormat(tokenizer)
    view = Drawers().view
    call = Call("probe", {"item": "A"})
    spoken = [{"type": "function", "function": {"name": "probe", "arguments": {"item": "A"}}}]
    asked = [*view.prompt, {"role": "assistant", "content": "", "tool_calls": spoken}]
    after = [*asked, {"role": "tool", "name": "probe", "content": "A holds 0."}]
    tools = [PROBE.openai()]
    whole = tokenizer.apply_chat_template(after, tools=tools, tokenize=False, add_generation_prompt=True)
    end = tokenizer.convert_ids_to_tokens(chat.end_id)
    given = tokenizer.decode(chat.closing([Reply("tool", "A holds 0.", call)]))
    assert whole.endswith(given)
    head = whole.removesuffix(given)
    assert head.endswith(end)
    assert head.rindex('"A"') > head.rindex("<|start_header_id|>" if name == "llama3_1" else "<|im_start|>")
    assert "A holds 0." in given


def test_a_template_that_needs_a_token_which_the_tokenizer_lacks_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="bos_token"):
        ChatFormat(byte_tokenizer(template("llama3")))


def test_two_replies_share_one_piece() -> None:
    chat = ChatFormat(tokenizer_with(template("qwen2_5")))
    replies = [Reply("tool", f"number {n}", Call("probe", {})) for n in range(2)]
    text = chat.tokenizer.decode(chat.closing(replies))
    assert text.count("<tool_response>") == 2
    assert text.count("<|im_start|>user") == 1


def test_stop_tokens_are_the_end_of_turn_the_tokenizers_own_and_the_models() -> None:
    tokenizer = tokenizer_with(template("llama3_1"), "<|eot_id|>", "<|eom_id|>")
    extra = tokenizer.convert_tokens_to_ids("<|eom_id|>")
    chat = ChatFormat(tokenizer, stop_ids=[extra])
    assert set(chat.stop_ids) == {chat.end_id, extra, tokenizer.convert_tokens_to_ids(END)}
