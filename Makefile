# make train — set up and run the main job;  make test — set up and check everything;  make help — the rest
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
WORKERS ?= 2
TESTS := OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses $(WORKERS) --dist loadgroup

# $(call beside_lint,TESTS): lint and types run beside the tests and are shown after them; what fails, fails all
define beside_lint
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	$(MAKE) --no-print-directory lint >"$$said" 2>&1 & lint=$$!; \
	$(1); tests=$$?; \
	wait $$lint; lint=$$?; cat "$$said"; \
	exit $$((tests != 0 || lint != 0))
endef

.PHONY: help setup train sweep test test-all lint bench clean
.DEFAULT_GOAL := help

help:
	@echo "make setup     build $(VENV) and install what requirements.lock names"
	@echo "make train     the main job on the embedded default: LeNet5, MixCon(λ=1, β=1e-4)"
	@echo "make sweep     a small grid on the embedded default, and its report"
	@echo "make test      lint, types and tests (minutes); WORKERS=8 where there are more cores"
	@echo "make test-all  the slow tests too"
	@echo "make lint      ruff and mypy"
	@echo "make bench     what is timed, with ratios"
	@echo "make clean     remove $(VENV) and caches, never a run"

# the stamp is touched last: an interrupted installation is simply done again
$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("sweetspot needs Python 3.11 or newer; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable ".[dev]"
	touch $@

setup: $(VENV)/.installed

train: setup
	$(RUN) train.py --lambda 1 --beta 1e-4

sweep: setup
	$(RUN) sweep.py --config configs/sweeps/small.yaml

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: setup
	$(call beside_lint,$(TESTS) -m "not slow")

test-all: setup
	$(call beside_lint,$(TESTS))

bench: setup
	$(RUN) benchmarks/train.py
	$(RUN) benchmarks/defences.py
	$(RUN) benchmarks/whitebox.py
	$(RUN) benchmarks/text_inversion.py
	$(RUN) benchmarks/gradients.py
	$(RUN) benchmarks/sweep.py
	$(RUN) benchmarks/report.py
	$(RUN) benchmarks/certificates.py
	$(RUN) benchmarks/images.py
	$(RUN) benchmarks/decoder.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
