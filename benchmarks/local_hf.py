"""Mellea's `LocalHFBackend` as a process that answers conversations: one JSON line in, one out.

Run by `benchmarks.peers` with the interpreter of an environment that this backend works in; it imports nothing of ours.

    python local_hf.py FOLDER
    in:  a list of chat messages with text
    out: {"seconds": CPU seconds for one token, "tokens": tokens of the prompt}
"""

import json
import os
import sys
import time
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MELLEA_RESPONSES_NO_M": "1"}

import torch
from mellea import MelleaSession
from mellea.backends.huggingface import LocalHFBackend
from mellea.backends.model_options import ModelOption
from mellea.stdlib.components import Message
from mellea.stdlib.context import ChatContext
from transformers import AutoModelForCausalLM, AutoTokenizer

OPTIONS = {ModelOption.MAX_NEW_TOKENS: 1, "do_sample": False}


def backend(folder: str) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return LocalHFBackend(folder, custom_config=(tokenizer, model, torch.device("cpu"))), tokenizer


def main(folder: str) -> None:
    # What the libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, tokenizer = backend(folder)
    for line in sys.stdin:
        messages = json.loads(line)
        context = ChatContext()
        for message in messages[:-1]:
            context = context.add(Message(message["role"], message["content"]))
        began = time.process_time()
        MelleaSession(model, ctx=context).chat(
            messages[-1]["content"], role=messages[-1]["role"], model_options=OPTIONS
        )
        seconds = time.process_time() - began
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        print(json.dumps({"seconds": seconds, "tokens": len(prompt["input_ids"])}), file=answers)


if __name__ == "__main__":
    main(sys.argv[1])
