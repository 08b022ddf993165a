"""Causal language models with their tokenizers: a fresh small GPT-2, GPT-2, SmolLM2, or any folder in the hub's layout.

    model, tokenizer = load_language_model("smollm2")
    model.name_or_path      # where it really came from, for the run's record

Weights are read from safetensors or GGUF, which hold numbers only; a model that brings its own code is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from sweetspot.datamodules.assets import SMOLLM2, fetch
from sweetspot.datamodules.text import pydoc
from sweetspot.datamodules.tokens import END, TextTokenizer, gpt2_tokenizer, train_bpe
from sweetspot.datamodules.torchvision_sets import reachable
from sweetspot.errors import UserError, first_line, meant

NAMES = ("gpt2", "gpt2-tiny", "smollm2")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")
GPT2_TOKENS = 50_257


def load_language_model(
    name: str, tokenizer: TextTokenizer | None = None, seed: int = 0
) -> tuple[PreTrainedModel, TextTokenizer]:
    """(model, tokenizer) in float32, for evaluation; the model's `name_or_path` says where it really came from.

    Args:
        name: `gpt2-tiny` (random weights), `smollm2`, a folder in the hub's layout, or a name on the hub, as `gpt2` is.
        tokenizer: the one that gpt2-tiny is made for; None: a BPE of the embedded English corpus. Others bring theirs.
        seed: draws the weights of gpt2-tiny.
    """
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return from_folder(folder)
    if name == "gpt2-tiny":
        tokenizer = tokenizer or train_bpe(pydoc().train)
        return gpt2_tiny(tokenizer.size, seed=seed), tokenizer
    if name == "smollm2":
        return smollm2()
    if folder.is_dir() and name not in NAMES:
        raise UserError(
            f"{name} holds no config.json; a model's folder needs config.json, *.safetensors, tokenizer.json"
        )
    if name.startswith(("/", "~", ".")) or name.count("/") > 1:
        raise UserError(f"model {name} is not there; give a folder in the hub's layout, or one of {', '.join(NAMES)}")
    return from_hub(name)


def gpt2_tiny(
    vocabulary: int,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    context: int = 128,
    dropout: float = 0.0,
    seed: int = 0,
) -> GPT2LMHeadModel:
    """A GPT-2 with random weights that trains on a CPU in minutes; the caller's random state is left as it was."""
    config = GPT2Config(
        vocab_size=vocabulary,
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        n_positions=context,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    model.eval()
    model.name_or_path = f"GPT-2, {layers} layers × {width}, random weights, seed {seed}"
    return model


def smollm2() -> tuple[PreTrainedModel, TextTokenizer]:
    """SmolLM2-135M-Instruct, out of a package that carries it in 4 bits a weight, as float32."""
    file = fetch(SMOLLM2)
    print(f"reading {file.name}, about 20 s …", flush=True)
    model, tokenizer = from_transformers(str(file.parent), "smollm2", gguf_file=file.name, local_files_only=True)
    model.name_or_path = f"{SMOLLM2.package}, {file.name}, sha256 {SMOLLM2.sha256}"
    return model, tokenizer


def from_folder(folder: Path) -> tuple[PreTrainedModel, TextTokenizer]:
    """The model in a local folder; its weights' SHA-256 goes on record: changed weights are another model."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise UserError(
            f"{folder} holds no *.safetensors; save the model with save_pretrained of a recent transformers"
        )
    own = any((folder / file).is_file() for file in TOKENIZER_FILES)
    model, tokenizer = from_transformers(str(folder), folder.resolve().name, own, local_files_only=True)
    digest = hashlib.sha256()
    for file in weights:
        with open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    model.name_or_path = f"{folder.resolve().name}, sha256 {digest.hexdigest()}"
    return model, tokenizer


def from_hub(name: str) -> tuple[PreTrainedModel, TextTokenizer]:
    """A model by its name on the hub: from the hub's cache, else downloaded, or refused within seconds."""
    try:
        model, tokenizer = from_transformers(name, name, local_files_only=True)
    except NotFoundError as missing:
        hint = "" if name in NAMES else meant(name, NAMES)
        if huggingface_hub.is_offline_mode() or not reachable(huggingface_hub.constants.ENDPOINT):
            raise UserError(
                f"model {name} is neither a folder nor in the hub's cache, and the hub cannot be reached{hint}; run "
                f"`hf download {name} --local-dir DIR` where it can and give DIR, or take smollm2 or gpt2-tiny"
            ) from missing
        try:
            model, tokenizer = from_transformers(name, name)
        except NotFoundError as error:
            raise UserError(f"model {name} cannot be had from the hub{hint}: {error}") from error
    config = huggingface_hub.try_to_load_from_cache(name, "config.json")  # …/snapshots/REVISION/config.json
    revision = Path(config).parent.name if isinstance(config, str) else "unknown"
    model.name_or_path = f"{name} from the hub, revision {revision}"
    return model, tokenizer


class NotFoundError(UserError):
    """The model is not where it was looked for."""


def from_transformers(
    where: str, name: str, own_tokenizer: bool = True, **options: Any
) -> tuple[PreTrainedModel, TextTokenizer]:
    """(model, tokenizer) by transformers, complete, and without code of their own."""
    options["trust_remote_code"] = False
    weights: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
    if "gguf_file" not in options:
        weights["use_safetensors"] = True  # and never a pickle
    try:
        with quiet() if options.get("local_files_only") else contextlib.nullcontext():
            loaded: Any = AutoModelForCausalLM.from_pretrained(where, **weights, **options)
            tokenizer = wrapped(AutoTokenizer.from_pretrained(where, **options), name) if own_tokenizer else None
    except OSError as error:
        raise NotFoundError(f"{name} cannot be loaded ({first_line(error)})") from error
    except UserError:
        raise
    except Exception as error:  # each format and each architecture fails in its own way
        if "trust_remote_code" in str(error):  # transformers would say how to run it
            raise UserError(f"{name} cannot be loaded: it brings code of its own, which is never run") from error
        raise UserError(f"{name} cannot be loaded as a causal language model ({first_line(error)})") from error
    model, found = loaded
    if found["missing_keys"]:  # transformers would fill them with random numbers
        first = sorted(found["missing_keys"])[0]
        raise UserError(f"{name} lacks {len(found['missing_keys'])} of its model's weights, {first} among them")
    tokenizer = tokenizer or tokenizer_for(model, name)
    rows = model.get_input_embeddings().num_embeddings
    if tokenizer.size > rows:
        raise UserError(f"{name}: the tokenizer has {tokenizer.size:,} tokens, but the model only {rows:,}")
    return unquantised(model).eval(), tokenizer


def tokenizer_for(model: PreTrainedModel, name: str) -> TextTokenizer:
    """GPT-2's tokenizer for a GPT-2 that brings none; other models must bring theirs."""
    if (model.config.model_type, model.config.vocab_size) != ("gpt2", GPT2_TOKENS):
        raise UserError(f"{name} holds no tokenizer; it needs {' or '.join(TOKENIZER_FILES)}")
    print(f"{name} brings no tokenizer: taking GPT-2's own, which its {GPT2_TOKENS:,} tokens call for", flush=True)
    return gpt2_tokenizer()


def wrapped(tokenizer: Any, name: str) -> TextTokenizer:
    """A tokenizer of transformers as ours; what the hub calls its end of text is ours, too."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{name} has a tokenizer that is not one of the fast ones; save it as tokenizer.json")
    end = backend.token_to_id(END)  # an instruction-tuned model calls the end of a turn its eos
    return TextTokenizer(backend, name, f"{name}'s own", tokenizer.eos_token_id if end is None else end)


def unquantised(model: PreTrainedModel) -> PreTrainedModel:
    """The model without the mark of a quantised one, which transformers leaves on it and which forbids other dtypes."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        quantizer.remove_quantization_config(model)
    return model


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and warnings of transformers: what must be known is raised as an error."""
    before = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(before[0])
        if before[1]:
            transformers.logging.enable_progress_bar()
