# mypy: disable-error-code="import-not-found, no-untyped-call"
"""Trains in one process on one device.

python single.py --digits digits.csv.gz
"""

import training


def main() -> None:
    options = training.parse_options()
    device = training.device_of(0)
    model = training.make_model(options).to(device)
    training.fit(model, options, device=device)


if __name__ == "__main__":
    main()
