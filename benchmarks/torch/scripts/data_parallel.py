# mypy: disable-error-code="import-not-found, no-untyped-call"
"""Trains in one process with DataParallel, which splits each batch among all GPUs that the process sees.

CUDA_VISIBLE_DEVICES=0,1 python data_parallel.py
"""

import training
from torch.nn.parallel import DataParallel


def main() -> None:
    options = training.parse_options()
    device = training.device_of(0)
    model = DataParallel(training.make_model(options).to(device))
    training.fit(model, options, device=device)


if __name__ == "__main__":
    main()
