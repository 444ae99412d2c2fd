// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// needed are options with nothing but what a plugin needs.
func needed() Options {
	return Options{
		Name:       "my-mesh-cni",
		Mesh:       sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "my-mesh"},
		Dataplanes: func() ([]choice.Candidate, error) { return nil, errors.New("not of this test") },
	}
}

func TestOptionsDefaults(t *testing.T) {
	t.Parallel()
	o := needed()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	o.setDefaults()
	if o.Paths != (pluginconf.Paths{RunDir: "/var/run/my-mesh-cni", Kubeconfig: "my-mesh-cni-kubeconfig"}) ||
		o.Mesh.Policy.AgentName != "my-mesh-cni-node" || o.About != "CNI plugin my-mesh-cni" || o.Version == "" {
		t.Errorf("got %+v", o)
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Options){
		`the name is "", and should be the file name of the plugin's binary`: func(o *Options) { o.Name = "" },
		`the name is "opt/x", and should be the file name`:                   func(o *Options) { o.Name = "opt/x" },
		`the name is "/", and should be the file name`:                       func(o *Options) { o.Name = "/" },
		`the name is ".."`:        func(o *Options) { o.Name = ".." },
		`the name is " "`:         func(o *Options) { o.Name = " " },
		`the name is "a\x00b"`:    func(o *Options) { o.Name = "a\x00b" },
		`the kubeconfig is "/"`:   func(o *Options) { o.Paths.Kubeconfig = "/" },
		`the kubeconfig is "."`:   func(o *Options) { o.Paths.Kubeconfig = "." },
		`the kubeconfig is ".."`:  func(o *Options) { o.Paths.Kubeconfig = ".." },
		`the kubeconfig is "a b"`: func(o *Options) { o.Paths.Kubeconfig = "a b" },
		`there are no Dataplanes: return one of package nftables`: func(o *Options) { o.Dataplanes = nil },
		`owner of the rules: `:                                                              func(o *Options) { o.Mesh.Owner = "" },
		`the dialect has no Membership`:                                                     func(o *Options) { o.Mesh.Dialect = sidecar.Dialect{} },
		`the run directory is "run", and should be an absolute path`:                        func(o *Options) { o.Paths.RunDir = "run" },
		`the kubeconfig is "/etc/k", and should be the name of a file in the run directory`: func(o *Options) { o.Paths.Kubeconfig = "/etc/k" },
	} {
		o := needed()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		for _, command := range []string{"ADD", "VERSION", "DEL"} {
			var stdout, stderr bytes.Buffer
			answered := -1
			o.Answered = func(code int) { answered = code }
			code := run(t.Context(), &env{
				Options: o, Stdout: &stdout, Stderr: &stderr,
				Getenv:     func(string) string { return command },
				Executable: func() (string, error) { return filepath.Join(t.TempDir(), "plugin"), nil },
			})
			if said, err := json.Marshal(want); err != nil || !strings.Contains(stderr.String(), strings.Trim(string(said), `"`)) {
				t.Errorf("%s: standard error has %s", command, stderr.String())
			}
			if command == "DEL" {
				if code != 0 || answered != 0 || stdout.Len() > 0 {
					t.Errorf("DEL: got %d, %s", code, stdout.String())
				}
				continue
			}
			var e types.Error
			if err := json.Unmarshal(stdout.Bytes(), &e); err != nil || code != 1 || answered != 1 || !strings.Contains(e.Msg, want) || e.Details == "" {
				t.Errorf("%s: got %d, %s, %v", command, code, stdout.String(), err)
			}
		}
	}
}

func TestConfigurationCompletesTheMesh(t *testing.T) {
	t.Parallel()
	o := needed()
	o.Mesh.Policy = sidecar.Policy{ExcludeNamespaces: []string{"a"}, AgentNamespace: "mesh", AgentName: "agent"}
	mesh := policedBy(o.Mesh, &config{Config: pluginconf.Config{ExcludeNamespaces: []string{"b"}}})
	for name, reason := range map[string]sidecar.Reason{
		"a/x": sidecar.ReasonExcludedNamespace, "b/x": sidecar.ReasonExcludedNamespace, "mesh/agent-x": sidecar.ReasonOwnAgent,
	} {
		namespace, pod, _ := strings.Cut(name, "/")
		if d, decided := mesh.ByName(namespace, pod); !decided || d.Reason != reason {
			t.Errorf("%s: got %v, %v", name, d, decided)
		}
	}
	mesh = policedBy(o.Mesh, &config{Config: pluginconf.Config{PodNamespace: "other", AgentName: "node"}})
	if d, decided := mesh.ByName("other", "node-x"); !decided || d.Reason != sidecar.ReasonOwnAgent {
		t.Errorf("got %v, %v", d, decided)
	}
	if len(o.Mesh.Policy.ExcludeNamespaces) != 1 {
		t.Errorf("the options were changed: %v", o.Mesh.Policy)
	}
}
