import type { ComponentChildren } from 'preact';
import { useErrorBoundary } from 'preact/hooks';
import { Failure } from './states';

/** Keeps a defect of one screen from taking the menu with it. */
export function ErrorBoundary({ children }: { children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary();
  if (!error) return <>{children}</>;
  return (
    <Failure error={new Error(`The page has a defect: ${error.message ?? error}`)} retry={reset} />
  );
}
