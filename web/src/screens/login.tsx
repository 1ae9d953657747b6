import { useState } from 'preact/hooks';
import { ApiError } from '../api/client';
import { logIn, startSession } from '../api/session';
import icon from '../icon.svg';

/** The token is sent once and kept nowhere; the cookie of the session follows from it. */
export function Login({ message }: { message?: string | undefined }) {
  const [problem, setProblem] = useState(message ?? '');
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const token = String(new FormData(form).get('token') ?? '').trim();
    setBusy(true);
    try {
      await logIn(token);
    } catch (error) {
      const isRefused = error instanceof ApiError && error.status === 401;
      setProblem(isRefused ? 'The gateway does not know this token.' : (error as Error).message);
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <img src={icon} alt="" width="40" height="40" />
        <h1>Ductile</h1>
        <label class="field">
          <span>API token</span>
          <input
            name="token"
            type="password"
            autocomplete="off"
            required
            autofocus
            aria-describedby="login-problem"
          />
        </label>
        <p id="login-problem" class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class="primary" disabled={isBusy}>
          Log in
        </button>
        <p class="muted">
          On the gateway's machine, <code>ductile ui</code> opens this page without a token.
        </p>
      </form>
    </main>
  );
}

export function Unreachable({ message }: { message: string }) {
  return (
    <main class="login">
      <div class="failure" role="alert">
        <h1>The gateway does not respond</h1>
        <p>{message}</p>
        <button type="button" class="primary" onClick={() => startSession()}>
          Try again
        </button>
      </div>
    </main>
  );
}
