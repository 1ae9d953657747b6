import { Page } from '../../components/page';
import { Tabs } from '../../components/tabs';
import { AuditLog } from './audit-log';
import { ConfigHistory } from './config-history';
import { ConfigFiles } from './config-view';
import { GatewayNodes } from './nodes';
import { TokenList } from './tokens';

export function Configuration() {
  return (
    <Page title="Configuration">
      <Tabs
        label="Parts of the configuration"
        tabs={[
          { id: 'config', label: 'Configuration', content: () => <ConfigFiles /> },
          { id: 'history', label: 'History', content: () => <ConfigHistory /> },
          { id: 'tokens', label: 'Tokens', content: () => <TokenList /> },
          { id: 'audit', label: 'Audit', content: () => <AuditLog /> },
          { id: 'nodes', label: 'Nodes', content: () => <GatewayNodes /> },
        ]}
      />
    </Page>
  );
}
