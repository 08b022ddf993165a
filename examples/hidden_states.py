"""Hidden states of a Hugging Face model, leaked into a file, and their text back. Nothing is downloaded.

python examples/hidden_states.py                 # a small GPT-2 with random weights, a few prompts
python examples/hidden_states.py --size 1        # one prompt
sweetspot invert text --model FOLDER/model --states FOLDER/leaked.safetensors     # the same on the command line
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from sweetspot.datamodules.text import pydoc
from sweetspot.datamodules.tokens import train_bpe
from sweetspot.evaluations.leak import invert_leak
from sweetspot.evaluations.leak_config import LeakConfig
from sweetspot.reports.tables import recovery_table

TEXTS = ("The launch code is 7319.", "Call me at noon.", "The patient has a fever.", "Nobody must know this.")


def model_in(folder: Path) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """A small GPT-2 and its tokenizer, saved as the hub lays them out: bring your own folder instead."""
    backend = train_bpe(pydoc().train[:50], vocabulary=500).backend
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    torch.manual_seed(0)
    shape = GPT2Config(n_layer=3, n_embd=64, n_head=4, n_positions=128, vocab_size=len(tokenizer))
    model = GPT2LMHeadModel(shape).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def main() -> None:
    """Leak, recover, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=len(TEXTS), help=f"prompts, at most {len(TEXTS)}")
    parser.add_argument("--folder", default=None, help="where the model and the leak are kept; default: nowhere")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(chosen.folder or temporary)
        model, tokenizer = model_in(folder / "model")
        for text in TEXTS[: chosen.size]:
            ids = torch.tensor([tokenizer.encode(text)])
            with torch.no_grad():
                states = model(ids, output_hidden_states=True).hidden_states[-1]  # (1, T, d), after the final norm
            save_file({"states": states.contiguous()}, folder / "leaked.safetensors")
            leak = LeakConfig(
                str(folder / "model"), states=str(folder / "leaked.safetensors"), cache=str(folder / "cache")
            )
            found = invert_leak(leak)
            recovery_table(found)
            print(f"original   {text}\nrecovered  {found['prompts'][0]['text']}\n")


if __name__ == "__main__":
    main()
