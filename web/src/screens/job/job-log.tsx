// The output of an attempt: live while it runs, otherwise as it is stored.

import { useEffect, useState } from 'preact/hooks';
import { path } from '../../api/client';
import { formatJson, parseJson } from '../../api/json';
import { readStream, type ServerSentEvent, StreamRefused } from '../../api/sse';
import type { Attempt, Job } from '../../api/types';
import { LogView } from '../../components/log-view';
import { formatDuration } from '../../format/duration';
import { toMillis } from '../../format/time';
import { queryValue, setQuery } from '../../router/router';

export function JobLog({ job }: { job: Job }) {
  if (job.status === 'running') return <LiveLog key={job.attempt} job={job} />;
  return <StoredLog job={job} />;
}

function StoredLog({ job }: { job: Job }) {
  const { attempts } = job;
  const last = attempts.at(-1);
  if (!last) return <p class="muted log-empty">It has not run yet.</p>;
  const wanted = Number(queryValue('attempt', String(last.attempt)));
  const shown = attempts.find(({ attempt }) => attempt === wanted) ?? last;
  return (
    <>
      {attempts.length > 1 && (
        <div class="segments">
          {attempts.map(({ attempt, status }) => (
            <button
              type="button"
              key={attempt}
              aria-pressed={attempt === shown.attempt}
              onClick={() => setQuery({ attempt: String(attempt) })}
            >
              Attempt {attempt} · {status.replace('_', ' ')}
            </button>
          ))}
        </div>
      )}
      <LogView text={textOf(shown)} name={`${shown.id}.log`} />
    </>
  );
}

/** What the attempt printed, then its own log lines, then its error. */
export function textOf({ stderr, stdout, logs, last_error }: Attempt): string {
  const lines = Array.isArray(logs) ? logs.map(describeLine) : [];
  const printed = [stderr, stdout].filter(Boolean).map((text) => ensureEnd(String(text)));
  const error = last_error ? [`error: ${last_error}\n`] : [];
  return [...printed, ...lines, ...error].join('');
}

function describeLine(line: unknown): string {
  const { level, message, ...rest } = (line ?? {}) as Record<string, unknown>;
  if (message === undefined) return `${formatJson(line as never, 0)}\n`;
  const fields = Object.keys(rest).length ? ` ${formatJson(rest as never, 0)}` : '';
  return `${level ?? 'info'}: ${message}${fields}\n`;
}

function ensureEnd(text: string): string {
  return text.endsWith('\n') ? text : `${text}\n`;
}

interface Progress {
  percent: number | null;
  message: string | null;
}

interface Live {
  text: string;
  progress: Progress | null;
  problem: string;
}

const RECONNECT_MS = 1000;

function LiveLog({ job }: { job: Job }) {
  const live = useLiveLog(job.job_id);
  return (
    <>
      {live.progress && <ProgressBar progress={live.progress} startedAt={job.started_at} />}
      {live.problem ? (
        <p class="muted log-empty">{live.problem}</p>
      ) : (
        <LogView text={live.text} name={`${job.job_id}-${job.attempt}.log`} isLive />
      )}
    </>
  );
}

/** Follows the log, and resumes after a lost connection where it stopped. */
function useLiveLog(jobId: string): Live {
  const [live, setLive] = useState<Live>({ text: '', progress: null, problem: '' });
  useEffect(() => {
    const abort = new AbortController();
    const follower = new LogFollower(jobId, abort.signal, (change) =>
      setLive((before) => ({ ...before, ...change(before) })),
    );
    void follower.run();
    return () => abort.abort();
  }, [jobId]);
  return live;
}

class LogFollower {
  private lastId = '';
  private isEnded = false;

  constructor(
    private readonly jobId: string,
    private readonly signal: AbortSignal,
    private readonly update: (change: (before: Live) => Partial<Live>) => void,
  ) {}

  async run(): Promise<void> {
    while (!this.signal.aborted && !this.isEnded) {
      try {
        await readStream({
          address: path('job', this.jobId, 'log', 'stream'),
          lastId: this.lastId,
          signal: this.signal,
          onOpen: () => {},
          onEvents: (events) => this.show(events),
          onId: (id) => {
            this.lastId = id;
          },
        });
      } catch (error) {
        if (error instanceof StreamRefused && error.status < 500) {
          this.update(() => ({ problem: describeRefusal(error.status) }));
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    }
  }

  /** One update per batch, however many lines arrive. */
  private show(events: ServerSentEvent[]): void {
    let text = '';
    let progress: Progress | null = null;
    for (const { type, data } of events) {
      if (type === 'end') this.isEnded = true;
      const content = (data ? parseJson(data) : {}) as unknown as Progress & { text?: string };
      if (type === 'log') text += ensureEnd(content.text ?? '');
      else if (type === 'progress') progress = content;
    }
    this.update((before) => ({
      text: before.text + text,
      progress: progress ?? before.progress,
    }));
  }
}

function describeRefusal(status: number): string {
  return status === 404
    ? 'This gateway does not have live logs; the log is shown when the attempt has ended.'
    : `The live log was refused with status ${status}.`;
}

interface ProgressBarProps {
  progress: Progress;
  startedAt: string | null;
}

function ProgressBar({ progress: { percent, message }, startedAt }: ProgressBarProps) {
  const left =
    percent && percent > 0 && percent < 100 && startedAt
      ? ((Date.now() - toMillis(startedAt)) / percent) * (100 - percent)
      : null;
  return (
    <div class="progress">
      <progress max={100} value={percent ?? undefined} aria-label="Progress" />
      <span>
        {percent !== null && `${percent} %`} {message}
        {left !== null && <span class="muted"> · about {formatDuration(left)} left</span>}
      </span>
    </div>
  );
}
