import { beforeEach, describe, expect, it } from 'vitest';
import {
  currentPath,
  currentQuery,
  matchPath,
  navigate,
  queryValue,
  setQuery,
} from '../src/router/router';

describe('router', () => {
  beforeEach(() => navigate('/jobs?status=dead'));

  it('reads path and query from the fragment', () => {
    expect(location.hash).toBe('#/jobs?status=dead');
    expect(currentPath.value).toBe('/jobs');
    expect(queryValue('status')).toBe('dead');
    expect(queryValue('plugin', 'all')).toBe('all');
  });

  it('changes a filter and keeps the others', () => {
    setQuery({ plugin: 'a b', status: null });
    expect(currentPath.value).toBe('/jobs');
    expect(currentQuery.value.toString()).toBe('plugin=a+b');
  });

  it('shows the home page for a fragment that is no path', () => {
    history.replaceState(null, '', '#code=abc');
    dispatchEvent(new PopStateEvent('popstate'));
    expect(currentPath.value).toBe('/');
  });

  it('matches paths with parameters', () => {
    expect(matchPath('/jobs/:id', '/jobs/a%2Fb')).toEqual({ id: 'a/b' });
    expect(matchPath('/jobs/:id', '/jobs')).toBeNull();
    expect(matchPath('/jobs/:id', '/runs/1')).toBeNull();
    expect(matchPath('/jobs/:id', '/jobs/%')).toBeNull();
  });
});
