// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// crowd are pods that differ in a port, each in its own network namespace.
type crowd struct {
	*node
	pods       []interception.Pod
	namespaces []*sandbox.Namespace
}

// crowded is the JSON of one of them.
func crowded(t testing.TB, number int) string {
	t.Helper()
	return strings.NewReplacer(
		`"name": "web-0"`, fmt.Sprintf(`"name": "web-%d"`, number),
		uid, fmt.Sprintf("%08d-0000-0000-0000-000000000000", number),
		`"REDIRECT"`, fmt.Sprintf(`"REDIRECT", "traffic.sidecar.istio.io/excludeOutboundPorts": "%d"`, 10000+number),
	).Replace(injected(t))
}

func newCrowd(t *testing.T, size int) *crowd {
	t.Helper()
	c := &crowd{node: newNode(t, func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods/web-"))
		if err != nil {
			t.Error(err)
		}
		answer(http.StatusOK, crowded(t, number))(w, r)
	})}
	for i := range size {
		pod, err := podsource.ParsePod([]byte(crowded(t, i)))
		if err != nil {
			t.Fatal(err)
		}
		namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespace.Close(); err != nil {
				t.Error(err)
			}
		})
		c.pods, c.namespaces = append(c.pods, pod), append(c.namespaces, namespace)
	}
	return c
}

// Pod is the view of a node agent.
func (c *crowd) Pod(_ context.Context, ref podsource.Ref) (interception.Pod, error) {
	for _, pod := range c.pods {
		if pod.Name == ref.Name {
			return pod, nil
		}
	}
	return interception.Pod{}, podsource.ErrNotFound
}

// member are the arguments of an ADD.
func (c *crowd) member(number int) *skel.CmdArgs {
	args := c.add(`{"plugin_log_level": "info"}`)
	args.ContainerID, args.Netns = fmt.Sprintf("container-%d", number), c.namespaces[number].Path()
	args.Args = fmt.Sprintf("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=%s;K8S_POD_UID=%s", c.pods[number].Name, c.pods[number].UID)
	return args
}

// addAll starts an ADD of each at once.
func (c *crowd) addAll(t *testing.T) {
	t.Helper()
	plugin(t)
	outcomes := make([]outcome, len(c.pods))
	var group sync.WaitGroup
	for i := range c.pods {
		args := c.member(i)
		group.Go(func() { outcomes[i] = c.exec("ADD", args) })
	}
	group.Wait()
	for _, o := range outcomes {
		o.mustSucceed(t)
	}
}

// TestManyADDsAtOnce starts the plugin for fifty pods at once: each has its own pod's rules,
// record, log line and result.
func TestManyADDsAtOnce(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"api-server", sourceAgent} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			c, a := newCrowd(t, 50), &agent{}
			if source == sourceAgent {
				c.serveBy(agentserver.Server{Pods: c, Logs: a, Results: a})
			}
			c.addAll(t)
			heard := c.collect(t, a)
			if records := c.attachments(); len(records) != len(c.pods) {
				t.Errorf("%d pods have %d records", len(c.pods), len(records))
			}
			for i := range c.pods {
				c.mustHave(t, i, source, heard)
			}
		})
	}
}

// collect returns what plugins told the agent, and what they kept because the agent was not there,
// or too slow.
func (c *crowd) collect(t *testing.T, a *agent) told {
	t.Helper()
	all := a.told()
	all.logs = append(all.logs, (&transcript{kept: []byte(strings.Join(c.kept(spool.PluginLog), "\n"))}).entries()...)
	for _, line := range c.kept(spool.PluginResults) {
		var r podsource.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all.results = append(all.results, r)
	}
	return all
}

// late tells whether a container's plugin says that the agent was too slow for it, as on a busy
// machine.
func (h told) late(container string) bool {
	return slices.ContainsFunc(h.logs, func(e podsource.LogEntry) bool {
		return e.Attributes["container"] == container && e.Attributes["source"] == sourceAgent &&
			strings.Contains(e.Attributes["reason"], "did not answer in time")
	})
}

// mustHave looks for all that is of one pod.
func (c *crowd) mustHave(t *testing.T, number int, source string, heard told) {
	t.Helper()
	args, path := c.member(number), c.namespaces[number].Path()
	if heard.late(args.ContainerID) {
		source = "api-server" // it is asked next
	}
	plan := c.planOf(path, c.pods[number])
	for _, drift := range interception.Diff(plan, c.observe(path)) {
		t.Errorf("pod %d: %s", number, drift)
	}
	record, err := c.journal().Read(journal.Attachment{Network: web.Network, ContainerID: args.ContainerID, Interface: args.IfName})
	if err != nil {
		t.Fatal(err)
	}
	if record.UID != c.pods[number].UID || record.Netns != path || record.Plan.Fingerprint() != plan.Fingerprint() {
		t.Errorf("pod %d: got record %+v", number, record)
	}
	if !slices.ContainsFunc(heard.results, func(r podsource.Result) bool {
		return r.ContainerID == args.ContainerID && r.UID == record.UID && r.Captured && r.Plan == plan.Fingerprint() && r.Source == source
	}) {
		t.Errorf("pod %d has no result of its own among %d", number, len(heard.results))
	}
	if !slices.ContainsFunc(heard.logs, func(e podsource.LogEntry) bool {
		return e.Attributes["container"] == args.ContainerID && e.Attributes["plan"] == plan.Fingerprint()
	}) {
		t.Errorf("pod %d has no log line of its own among %d", number, len(heard.logs))
	}
}
