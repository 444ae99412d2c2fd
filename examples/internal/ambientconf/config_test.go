// SPDX-License-Identifier: Apache-2.0

package ambientconf_test

import (
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
)

func pod(labels map[string]string) ambient.Pod {
	return ambient.Pod{Pod: interception.Pod{Namespace: "shop", Name: "web-0", UID: "a", Labels: labels}}
}

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := ambientconf.Parse(`{"selectors":[{"podSelector":{"matchLabels":{"mesh":"yes"}}}],"excludeNamespaces":["bank"],"proxyNamespace":"mesh",
		"proxyLabels":{"app":"proxy"},"dns":true,"closed":true,"captureExisting":true,"noHost":true,"noBranches":true,"dataplane":"iptables","drainTimeout":"5s"}`)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := c.Policy()
	if err != nil || !ambient.Enrolled(pod(map[string]string{"mesh": "yes"}), ambient.Namespace{Name: "shop"}, policy).Capture {
		t.Errorf("the policy is %+v, %v", policy, err)
	}
	if drain, err := c.Drain(); err != nil || drain != 5*time.Second {
		t.Errorf("the drain timeout is %s, %v", drain, err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := ambientconf.Parse(`{"proxyNamespace":"shop"}`)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := c.Policy()
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]bool{"istio.io/dataplane-mode": true, "mesh": false} {
		if got := ambient.Enrolled(pod(map[string]string{label: "ambient"}), ambient.Namespace{Name: "shop"}, policy).Capture; got != want {
			t.Errorf("a pod with the label %s is enrolled: %t, want %t", label, got, want)
		}
	}
	proxy := pod(map[string]string{"istio.io/dataplane-mode": "ambient", "app": "ztunnel"})
	if decision := ambient.Enrolled(proxy, ambient.Namespace{Name: "shop"}, policy); decision.Capture {
		t.Errorf("the proxy is enrolled: %s", decision)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "EOF",
		`{"selector":[]}`:                     `unknown field "selector"`,
		`{} {}`:                               "after the object",
		`{"selectors":[{"podSelectors":{}}]}`: "podSelectors",
		`{"drainTimeout":"soon"}`:             "soon",
		`{"drainTimeout":"-1s"}`:              "above zero",
		`{"mode":"pod"}`:                      `set "in-pod" or "node"`,
		`{"way":"geneve"}`:                    `set "veth" or "vxlan"`,
		`{"way":"veth"}`:                      `for mode "node" alone`,
		`{"mode":"in-pod","way":"vxlan"}`:     `for mode "node" alone`,
		`{"mode":"node"}`:                     "set proxyNamespace",
		`{"mode":"node","proxyNamespace":"mesh","noHost":true}`:          "remove noHost",
		`{"mode":"node","proxyNamespace":"mesh","captureExisting":true}`: "remove captureExisting",
		`{"mode":"node","proxyNamespace":"mesh","way":"geneve"}`:         `set "veth" or "vxlan"`,
	} {
		if _, err := ambientconf.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		onNode bool
		way    ambient.Way
	}{
		`{}`:                {false, ambient.WayVeth},
		`{"mode":"in-pod"}`: {false, ambient.WayVeth},
		`{"mode":"node","proxyNamespace":"mesh"}`:                                                      {true, ambient.WayVeth},
		`{"mode":"node","way":"veth","proxyNamespace":"mesh"}`:                                         {true, ambient.WayVeth},
		`{"mode":"node","way":"vxlan","proxyNamespace":"mesh","noBranches":true,"drainTimeout":"20s"}`: {true, ambient.WayVXLAN},
	} {
		c, err := ambientconf.Parse(text)
		if err != nil || c.OnNode() != want.onNode || c.ProxyWay() != want.way {
			t.Errorf("%s: on the node %t by %s, %v, want %t by %s", text, c.OnNode(), c.ProxyWay(), err, want.onNode, want.way)
		}
	}
}
