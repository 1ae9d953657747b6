"""Pipelines and routes; the life of a pipeline job:

1. **prepare** (after the claim): if `router.lost(...)` reports that a reload removed or replaced
   the job's step, the job fails with that reason; it never runs as the new step. Otherwise `node =
   router.node(job.pipeline, job.step_path)`. The payload is `entered_payload(command, column)`, the
   context the row that the job entered with. Then by `node.kind`: `prepare_step` (run the plugin
   with its payload and context), `judge_switch` (no process), `prepare_relay` (the outbox sends
   it). A `Failure` ends this job as `failed`, without retry.
2. **judge**: for a succeeded job, `events = outgoing(...)`, or `(switch_event(...),)`; then
   `routing = router.route(Done(...), events)`. `Done.context` is the step's own
   `accumulated`, as `prepare` returned it.
3. **settle**, in one transaction: write the step's own context row (parent: the one it
   entered with), then the intents. `StartPipeline`: a scope without parent, its root row
   (`intent.context(scope_id)`) unless a hook starts it, then its children in it. `OpenScope`: a
   scope below the current one, which stores its fields and the context row that entered it, then
   its children in it. `SpawnJob`: a job, unique by `identity`, whose payload is
   `payload_column(command, event)` and whose entering context is the ended job's row, or
   the root row inside a `StartPipeline`; one with `dead` set is recorded and ended at once.
   Which first jobs of an instance are duplicates by their dedupe key is decided before any of
   them is written; if all are, the instance ends as `skipped`.
4. **close**, for every way to end a job: if a split's scope has no queued or running job and no
   open child, and no failed job (or `join_always`), mark it ended, once, and write the result of
   `router.join(...)` into the scope above with `join_of` set, entering with the row that entered
   the split; if the next step no longer exists (`unrouted`), mark it failed with that reason.
   `EndedJob` needs all jobs of the scope and of its inner scopes, in the order of the queue. When
   a root job ends, `router.hooks`; when a pipeline instance ends, `router.handlers`.
"""
