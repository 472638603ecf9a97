"""Converts between ElasticPyTorchJobs and other job descriptions: PyTorchJobs, Run:ai, Slurm, torchrun.

Everything here is pure: no cluster, no clock, no network. The result is `Converted(manifest, kept, lost, notes)`: a
manifest that the operator accepts and, line by line, the new form of each part of the input. A part that is not in the
manifest is always named. Input that cannot be converted raises `ConvertError`, whose text is one line for users.

| function | from | to |
|---|---|---|
| `run.from_flags(RunFlags(...))` | flags of `kubectl elastic run` | `Converted` |
| `runai.from_runai(words)` | a command line of Run:ai | `Converted` |
| `pytorchjob.from_pytorchjob(body)`, `.from_documents(bodies)` | a PyTorchJob, a file with some | `Converted` |
| `sbatch.from_sbatch(script, image=...)` | a batch script of Slurm | `Converted` |
| `to_sbatch.to_sbatch(body)` | a job | a batch script |
| `to_torchrun.to_torchrun(body)` | a job | command lines, one for each machine |
| `manifest.as_written(body)`, `manifest.to_yaml(body)` | a job from the cluster | the manifest as typed |

`commands` has all of them for typer: `import_app`, `export_app` or `make_export_app(read_job)`, and `add_run(app,
submit)`, which adds `run` and `submit-dist`.
"""
