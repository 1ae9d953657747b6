import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Failure, Loading } from './states';

/** An update of the gateway replaces the files of a page that was opened before. */
const MISSING = new Error(
  'This part of the page could not be loaded: the gateway was updated, or does not respond.',
);

/** A component that is loaded when it is first shown. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [Component, setComponent] = useState<ComponentType<P> | null>(() => loaded);
    const [isMissing, setMissing] = useState(false);
    useEffect(() => {
      if (loaded) return;
      load().then(
        (component) => {
          loaded = component;
          setComponent(() => component);
        },
        () => setMissing(true),
      );
    }, []);
    if (Component) return <Component {...props} />;
    return isMissing ? <Failure error={MISSING} retry={() => location.reload()} /> : <Loading />;
  };
}
