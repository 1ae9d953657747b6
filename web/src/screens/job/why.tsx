import type { ComponentChildren } from 'preact';
import type { Job } from '../../api/types';
import { Time } from '../../components/time';
import { capitalized } from '../../format/text';
import { Link } from '../../router/link';

const BAD = new Set(['failed', 'timed_out', 'dead']);
const MARKED =
  /(?<!approve )(\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)|(\b\d{4}-\d\d-\d\dT[\d:.]+Z)/g;

/** The gateway's explanation, with the error of a failed job first. */
export function Why({ job, why }: { job: Job; why: string[] }) {
  const isBad = BAD.has(job.status);
  return (
    <section class={isBad ? 'why why-bad' : 'why'} aria-labelledby="why">
      <h2 id="why">Why</h2>
      {(isBad || job.next_retry_at) && job.last_error && <p class="why-error">{job.last_error}</p>}
      {job.waits_for && <p class="why-waits">{withLinks(capitalized(job.waits_for))}</p>}
      <ol>
        {why.map((reason) => (
          <li key={reason}>{withLinks(reason)}</li>
        ))}
      </ol>
    </section>
  );
}

/** Turns ids of jobs, not those of approvals, into links, and times into the viewer's zone. */
export function withLinks(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let place = 0;
  for (const found of text.matchAll(MARKED)) {
    const [whole, id] = found;
    parts.push(text.slice(place, found.index));
    parts.push(
      id ? (
        <Link to={`/jobs/${id}`} class="mono">
          {id}
        </Link>
      ) : (
        <Time at={whole} />
      ),
    );
    place = found.index + whole.length;
  }
  parts.push(text.slice(place));
  return parts;
}
