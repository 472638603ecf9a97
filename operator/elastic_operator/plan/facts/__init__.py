"""The planner's input and output as frozen dataclasses, and the rules that all packages of `plan` share."""
