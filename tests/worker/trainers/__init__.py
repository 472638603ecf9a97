"""Jobs whose scripts use third-party trainers, transformers and lightning, with real launchers."""
