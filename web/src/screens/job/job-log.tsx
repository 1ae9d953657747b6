// The output of an attempt: live while it runs, otherwise as it is stored.

import { useEffect, useState } from 'preact/hooks';
import { path } from '../../api/client';
import { formatJson, parseJson } from '../../api/json';
import { readStream, type ServerSentEvent, StreamRefused } from '../../api/sse';
import type { Attempt, Job, Progress } from '../../api/types';
import { LogView } from '../../components/log-view';
import { ProgressBar } from '../../components/progress-bar';
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

type LogEvent = Progress & { attempt: number; text: string };

interface Live {
  text: string;
  progress: Progress | null;
  problem: string;
}

const RECONNECT_MS = 1000;

function LiveLog({ job }: { job: Job }) {
  const live = useLiveLog(job.job_id, job.attempt);
  return (
    <>
      {live.progress && <ProgressBar progress={live.progress} />}
      {live.problem ? (
        <p class="muted log-empty">{live.problem}</p>
      ) : (
        <LogView text={live.text} name={`${job.job_id}-${job.attempt}.log`} isLive />
      )}
    </>
  );
}

/** Follows the log, and resumes after a lost connection where it stopped. */
function useLiveLog(jobId: string, attempt: number): Live {
  const [live, setLive] = useState<Live>({ text: '', progress: null, problem: '' });
  useEffect(() => {
    const abort = new AbortController();
    const follower = new LogFollower(jobId, attempt, abort.signal, (change) =>
      setLive((before) => ({ ...before, ...change(before) })),
    );
    void follower.run();
    return () => abort.abort();
  }, [jobId, attempt]);
  return live;
}

class LogFollower {
  /** The attempt, and the number of characters that were received of its log. */
  private lastId: string;
  private isEnded = false;

  constructor(
    private readonly jobId: string,
    private readonly attempt: number,
    private readonly signal: AbortSignal,
    private readonly update: (change: (before: Live) => Partial<Live>) => void,
  ) {
    this.lastId = `${attempt}-0`;
  }

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
      const content = parseJson(data) as unknown as LogEvent;
      if (type === 'end' || type === 'attempt') this.isEnded = true;
      else if (type === 'log' && content.attempt === this.attempt) text += content.text;
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
