// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestRetire(t *testing.T) {
	t.Parallel()
	const leaving = `{"kind":"DaemonSet","metadata":{"name":"istio-cni-node","deletionTimestamp":"x"}}`
	for name, test := range map[string]struct {
		prepare func(n *testNode)
		args    []string
		code    int
		says    string
	}{
		"gone": {func(n *testNode) { n.withAPIServer().say(404, noDaemonSet) }, nil, exitOK, "istio-system/istio-cni-node is deleted, its pods have ended"},
		"not allowed": {
			func(n *testNode) { n.withAPIServer().say(403, `{"kind":"Status","message":"no"}`) },
			nil, exitFailure, `403 "no"; the service account needs get and delete of it`,
		},
		"a node is down": {func(n *testNode) { n.withAPIServer().say(200, leaving) }, []string{"--timeout=1ms"}, exitFailure, "is still there"},
		"which":          {func(n *testNode) { delete(n.env, "POD_NAME") }, nil, exitUsage, "set pod-namespace and agent-name"},
		"no server":      {func(n *testNode) { n.env["KUBERNETES_SERVICE_HOST"] = "" }, nil, exitUsage, "KUBERNETES_SERVICE_HOST"},
		"settings":       {func(n *testNode) { n.env["FAIL_POLICY"] = "ajar" }, nil, exitUsage, "write one of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			test.prepare(n)
			stdout, stderr := n.command(test.code, append([]string{"retire"}, test.args...)...)
			if !strings.Contains(stdout+stderr, test.says) {
				t.Errorf("it says %q and %q", stdout, stderr)
			}
		})
	}
}
