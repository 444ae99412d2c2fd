// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEarlierGeneration(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, entry, level, runDir, kubeconfig, excluded string }{
		{
			name:  "1.18",
			entry: `{"log_level": "warn", "log_uds_address": "/run/x/log.sock", "kubernetes": {"kubeconfig": "/k", "exclude_namespaces": ["a"]}}`,
			level: "WARN", runDir: "/run/x", kubeconfig: "/k", excluded: "a",
		},
		{
			name: "both: the newer keys count",
			entry: `{"log_level": "warn", "plugin_log_level": "error", "cni_agent_run_dir": "/run/y", "log_uds_address": "/run/x/log.sock",
				"kubeconfig": "/new", "exclude_namespaces": ["b"], "kubernetes": {"kubeconfig": "/k", "exclude_namespaces": ["a"]}}`,
			level: "ERROR", runDir: "/run/y", kubeconfig: "/new", excluded: "b",
		},
		{
			name:  "an empty newer list is a list",
			entry: `{"exclude_namespaces": [], "kubernetes": {"exclude_namespaces": ["a"]}}`,
			level: "INFO", runDir: "/var/run/istio-cni", kubeconfig: "/var/run/istio-cni/istio-cni-kubeconfig",
		},
		{
			name: "a socket of another name says nothing about the run directory", entry: `{"log_uds_address": "/run/x/logs"}`,
			level: "INFO", runDir: "/var/run/istio-cni", kubeconfig: "/var/run/istio-cni/istio-cni-kubeconfig",
		},
		{
			name: "2019", level: "INFO", runDir: "/var/run/istio-cni", kubeconfig: "/k",
			entry: `{"kubernetes": {"k8s_api_root": "https://[10.0.0.1]:443", "kubeconfig": "/k", "intercept_type": "iptables", "node_name": "n"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := PathsOf("istio-cni").Parse([]byte(test.entry))
			if err != nil {
				t.Fatal(err)
			}
			got := []string{c.Level.String(), c.RunDir, c.Kubeconfig, ""}
			for _, namespace := range c.ExcludeNamespaces {
				got[3] += namespace
			}
			if diff := cmp.Diff([]string{test.level, test.runDir, test.kubeconfig, test.excluded}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnusualIsRead(t *testing.T) {
	t.Parallel()
	c, err := Decode([]byte(`{"NAME": "a", "timeout": null, "exclude_namespaces": ["a"], "exclude_namespaces": ["b"], "name": "\ud83d\ude00"}`))
	if err != nil || c.Name != "😀" || c.Timeout != "" || len(c.ExcludeNamespaces) != 1 || c.ExcludeNamespaces[0] != "b" {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		`{"timeout": "soon"}`:                      `timeout is "soon", and should be a time such as "30s"`,
		`{"abandoned_after": "0s"}`:                `abandoned_after is "0s", and should be a time such as "30s"`,
		`{"timeout": 30}`:                          `timeout is a number, and should be a string`,
		`{"log_level": "loud"}`:                    `plugin_log_level is "loud", and should be debug, info, warn, error, fatal or none`,
		`{"kubernetes": {"kubeconfig": "k"}}`:      `kubeconfig is "k", and should be an absolute path`,
		`{"kubernetes": []}`:                       `kubernetes is a array, and should be an object`,
		`{"fail_policy": {"default": "ajar"}}`:     `fail_policy.default is "ajar", and should be "closed" or "open"`,
		`{"exclude_namespaces": "a", "name": "n"}`: `exclude_namespaces is a string, and should be a list of strings`,
	} {
		c, err := PathsOf("istio-cni").Parse([]byte(entry))
		if !errors.Is(err, ErrValue) || err.Error() != want {
			t.Errorf("%s: %v, want %s", entry, err, want)
		}
		if c.CNIVersion != "0.1.0" || PathsOf("istio-cni").RunDirOf(c) != "/var/run/istio-cni" {
			t.Errorf("%s: version %q, run directory %q beside the error", entry, c.CNIVersion, PathsOf("istio-cni").RunDirOf(c))
		}
	}
	if _, err := PathsOf("istio-cni").Parse([]byte("{")); err == nil || errors.Is(err, ErrValue) {
		t.Errorf("no JSON: %v", err)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	c, err := (Paths{RunDir: "/run/mesh", Kubeconfig: "k"}).Parse([]byte(`{"cni_agent_run_dir": "/run/other"}`))
	if err != nil || c.RunDir != "/run/other" || c.Kubeconfig != "/run/other/k" {
		t.Errorf("got %s, %s, %v", c.RunDir, c.Kubeconfig, err)
	}
	for want, p := range map[string]Paths{
		`the run directory is "run", and should be an absolute path`:                                                      {RunDir: "run"},
		`the kubeconfig is "/etc/kubeconfig", and should be the name of a file in the run directory, without white space`: {Kubeconfig: "/etc/kubeconfig"},
	} {
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := (Paths{}).Validate(); err != nil {
		t.Error(err)
	}
}
