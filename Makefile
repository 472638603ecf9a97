# Everything a person types. `make help` lists it; the cluster targets need Linux and root.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

NAME ?= demo
NODES ?= 2
GPUS ?= 4
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elastic-pytorch
UV := $(or $(shell command -v uv 2>/dev/null),$(CACHE)/uv/bin/uv)
RUN := $(UV) run --frozen
export UV_PYTHON_DOWNLOADS := never
# Bytecode is kept, whatever this machine's settings say: else each process that a test starts compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
export UV_COMPILE_BYTECODE := 1

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22
	@echo '  NAME=, NODES= and GPUS= (per node) choose the local cluster; now $(NAME), $(NODES), $(GPUS)'

demo: venv ## A real cluster from nothing, and a job on it that grows from 4 to 8 processes and back, in both modes
	@$(RUN) python -m demo elastic --name $(NAME) --nodes $(NODES) --gpus $(GPUS) $(ARGS)

demo-quota: venv ## Three teams on six GPUs: one borrows what is idle, and the owner gets it back when it asks
	@$(RUN) python -m demo quota $(if $(filter-out file,$(origin NAME)),--name $(NAME)) $(ARGS)

env: venv ## What a shell needs for the local cluster NAME: eval "$$(make env)", then kubectl and helm
	@$(RUN) python -m devcluster env --name $(NAME)

down: venv ## Give everything the local cluster NAME took back to the machine
	@$(RUN) python -m devcluster down --name $(NAME)

test: venv shells ## What every change must pass, half an hour; PYTEST="--collect-only" adds to it
	@$(RUN) python -m devcluster prepare
	@$(RUN) pytest -n 3 --dist loadgroup --no-loadscope-reorder -m "$(GATE)" $(FIXED) --whole-tree --retry-a-wait $(PYTEST)

test-all: venv shells ## The rest, in random order and without a second try; PARTS="network trainers" chooses
	@$(RUN) python -m devcluster prepare
	@$(RUN) python -m tests.kit.parts run $(PARTS)

test-touched: venv shells ## Of the rest what a change touches: parts changed since they were last seen green
	@$(RUN) python -m devcluster prepare
	@$(RUN) python -m tests.kit.parts touched

test-long: venv shells ## What takes longer than a coffee: every property on 5,000 random cases
	@$(RUN) pytest -m "long or hypothesis" --hypothesis-profile=long --timeout=3600

times: ## Run the tests of `make test`, and record how long each took in tests/times.json
	@$(MAKE) test PYTEST="--record-times"

steady: venv shells ## The changed real-time tests 20 times beside two busy loops; ARGS="--base main --rounds 5"
	@$(RUN) python -m tests.kit.steady $(ARGS)

check: lint shells ## Lint, types, layers, drift, unit and property tests
	@$(RUN) pytest -q -n 2 --dist loadfile $(NEED_TORCH:%=--ignore %) $(FIXED) -m "$(GATE) and not (processes or programs or apiserver or cluster or simulation)"

lint: venv ## The part of `make check` that runs no test
	@$(RUN) ruff format --check --quiet . && $(RUN) ruff check --quiet .
	@$(RUN) mypy
	@$(RUN) lint-imports

why: ## A decision with its reason, and where the code refers to it: N=143
	@grep -hE '^\| $(N) \|' docs/decisions.md || { echo "docs/decisions.md has no decision with the number N=$(N)"; exit 1; }
	@git grep -nP '(?<!\w)\((\d+(, | and ))*$(N)((, | and )\d+)*\)' -- 'operator/*.py' 'worker/*.py' || true

bench-react: venv ## How fast the operator answers among 250 jobs with 1,000 pods; ARGS="--help" for options
	@$(RUN) python -m benchmarks.react $(ARGS)

bench-reclaim: venv ## How fast a team gets back what 1,000 jobs on 4,000 GPUs borrowed; ARGS="--help" for options
	@$(RUN) python -m benchmarks.reclaim $(ARGS)

bench-allocate: venv ## How long one decision about 4,000 GPUs and 1,000 jobs takes; ARGS="--help" for options
	@$(RUN) python -m benchmarks.allocate $(ARGS)

bench-scale: venv ## How fast hundreds of jobs start at once, beside a plain client, and how it grows; ARGS="--help" for options
	@$(RUN) python -m benchmarks.scale $(ARGS)

bench-passes: venv ## What passes cost with 5,000 queued jobs, 5,000 waiting pods, 1,000 large pods; ARGS="--help" for options
	@$(RUN) python -m benchmarks.passes $(ARGS)

bench-policy: venv ## How much work gets done under this policy and three others, in simulated clusters; ARGS="--help" for options
	@$(RUN) python -m benchmarks.policy $(ARGS)

bench-rescale: venv ## What a change of size, or a lost master, costs: torchrun, Elastic mode, the library; ARGS="--help" for options
	@$(RUN) python -m benchmarks.rescale $(ARGS)

bench-overhead: venv ## What the library costs a training that never changes its size; ARGS="--help" for options
	@$(RUN) python -m benchmarks.overhead $(ARGS)

bench-torch: venv ## How fast DataParallel, DDP, mixed precision, Elastic mode and the library train; ARGS="--help" for options
	@$(RUN) python -m benchmarks.torch $(ARGS)

test-gpu: venv ## What only a machine with a GPU can show: NCCL, GPU tensors, the warm parent, AMP
	@$(RUN) pytest tests/worker/gpu

# The user's own python has the torch; `uv run` would find the venv's.
gpu-report: venv ## What elastic training does on this machine's GPUs: a JSON file and a table; PYTHON=python3 ARGS="--device cpu"
	@$(RUN) python -m benchmarks.gpu --python "$(or $(PYTHON),$(shell command -v python3))" $(ARGS)

chaos: venv ## Random faults against a training job for MINUTES= minutes (5); ARGS="--seed 7", ARGS="--library --faults 2000"
	@$(RUN) python -m tests.worker.chaos --minutes $(or $(MINUTES),5) $(ARGS)

soak: venv ## Trainings, jobs, edits and a fault every minute on a real cluster for MINUTES= (30); ARGS="--seed 1 --report"
	@$(RUN) python -m tests.soak --minutes $(or $(MINUTES),30) $(ARGS)

crds: venv ## Renew the CRDs from the models, and all else that is generated and needs no helm
	@$(RUN) python -m generate --without-helm

generated: venv ## Renew all that is generated: CRDs, the chart's README and dashboard, manifests, docs/metrics.md, docs/fields.md
	@$(RUN) python -m generate

golden: venv ## Renew the files that tests compare with
	@$(RUN) python -m tests.chart.renew && $(RUN) python -m tests.tools.two_teams && $(RUN) python -m tests.build.renew

seeds: venv ## Renew which seed catches which mutant, where the recorded one does not any more
	@$(RUN) python -m tests.simulate.renew_seeds && $(RUN) python -m tests.virtual.caught

release: venv ## Images, chart, wheels and more of the last commit, in dist/: VERSION=1.2.3 REGISTRY=registry.example.com/team
	@$(RUN) python -m release "$(VERSION)" --registry "$(REGISTRY)"

image: venv ## Build the images of the Dockerfile for the local cluster
	@$(RUN) python -m devcluster image

cluster-up: venv ## Start the local cluster NAME with NODES nodes of GPUS GPUs
	@$(RUN) python -m devcluster up --name $(NAME) --nodes $(NODES) --gpus $(GPUS)

cluster-down: down ## The same as down

# The tests of `make test`, and their order: always the same, so that a run can be repeated.
GATE := not (extended or long)
FIXED := -p randomly --randomly-seed=1 --randomly-dont-reorganize

# These import torch, which a check of under a minute cannot install.
NEED_TORCH := tests/worker/library tests/worker/equality tests/worker/gpu tests/worker/trainers

venv: $(UV)
	@$(UV) sync --frozen --quiet

# Packages that only the tests need.
shells:
	@python3 -m devcluster.packages

$(CACHE)/uv/bin/uv:
	@python3 -m devcluster.uv

.PHONY: help why demo demo-quota env down test test-all test-touched test-long times steady check lint bench-react bench-reclaim bench-allocate bench-passes bench-policy bench-scale bench-rescale bench-overhead bench-torch chaos soak test-gpu gpu-report crds generated golden seeds release image cluster-up cluster-down venv shells
