"""What was last seen and planned of each job, kept for whoever looks at metrics between two passes."""

from __future__ import annotations

from collections.abc import Mapping, Set

from elastic_operator.api.status import ConditionType, JobStatus
from elastic_operator.metrics.picture import JobPicture
from elastic_operator.metrics.times import JobTimes
from elastic_operator.plan.job.group import report_of
from elastic_operator.plan.job.observation import Observation
from elastic_operator.read.jobs import drop_absent


class Shown:
    """Of all jobs, by uid."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Observation, JobStatus]] = {}
        self._times = JobTimes()

    def see(self, obs: Observation, status: JobStatus) -> None:
        """A plan was made for the job, with that status."""
        ready = status.condition(ConditionType.READY)
        self._jobs[obs.job.uid] = obs, status
        self._times.see(obs.job.uid, ready.reason if ready else "", report_of(obs))

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone; `present` are the uids of those that are not."""
        drop_absent(self._jobs, present)
        self._times.keep_only(present)

    def pictures(self, policy_of: Mapping[str, str]) -> tuple[JobPicture, ...]:
        """All jobs as they are now; `policy_of` names the quota policy of each namespace that has one."""
        return tuple(
            JobPicture(
                obs=obs,
                status=status,
                policy=policy_of.get(obs.job.namespace, ""),
                seconds=self._times.seconds(uid),
                moved_at=self._times.moved_at(uid),
            )
            for uid, (obs, status) in self._jobs.items()
        )
