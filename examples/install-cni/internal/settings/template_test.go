// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// istio118 is the template in the chart of Istio 1.18, with its values filled in.
const istio118 = `{
  "cniVersion": "0.3.1",
  "name": "istio-cni",
  "type": "istio-cni",
  "log_level": "__LOG_LEVEL__",
  "log_uds_address": "__LOG_UDS_ADDRESS__",
  "kubernetes": {
    "kubeconfig": "__KUBECONFIG_FILEPATH__",
    "cni_bin_dir": "/opt/cni/bin",
    "exclude_namespaces": [ "istio-system", "kube-system" ]
  }
}`

func TestTemplate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(file, []byte(`{"type": "istio-cni", "name": "from a file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{
			name: "1.18", env: map[string]string{"CNI_NETWORK_CONFIG": istio118, "CNI_NET_DIR": "/var/cni/net.d"},
			want: `{"name": "istio-cni", "type": "istio-cni", "log_level": "info", "log_uds_address": "/var/run/istio-cni/log.sock",
				"kubernetes": {"kubeconfig": "/var/cni/net.d/ZZZ-istio-cni-kubeconfig", "cni_bin_dir": "/opt/cni/bin",
					"exclude_namespaces": ["istio-system", "kube-system"]}}`,
		},
		{
			name: "1.18 with its settings",
			env: map[string]string{
				"CNI_NETWORK_CONFIG": istio118, "KUBECFG_FILE_NAME": "x-kubeconfig", "LOG_LEVEL": "warn", "LOG_UDS_ADDRESS": "/run/x/log.sock",
			},
			want: `{"name": "istio-cni", "type": "istio-cni", "log_level": "warn", "log_uds_address": "/run/x/log.sock",
				"kubernetes": {"kubeconfig": "/etc/cni/net.d/x-kubeconfig", "cni_bin_dir": "/opt/cni/bin", "exclude_namespaces": ["istio-system", "kube-system"]}}`,
		},
		{
			name: "2019",
			env: map[string]string{
				"CNI_NETWORK_CONFIG": `{"type": "istio-cni", "kubernetes": {"k8s_api_root": "https://__KUBERNETES_SERVICE_HOST__:__KUBERNETES_SERVICE_PORT__",
					"port": __KUBERNETES_SERVICE_PORT__, "node_name": "__KUBERNETES_NODE_NAME__", "name": "__KUBECONFIG_FILENAME__"}}`,
				"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_NODE_NAME": "node-1",
				"KUBECONFIG_FILENAME": "y-kubeconfig",
			},
			want: `{"type": "istio-cni", "kubernetes": {"k8s_api_root": "https://10.0.0.1:443", "port": 443, "node_name": "node-1", "name": "y-kubeconfig"}}`,
		},
		{
			name: "a file goes before the text", env: map[string]string{"CNI_NETWORK_CONFIG": istio118, "CNI_NETWORK_CONFIG_FILE": file},
			want: `{"type": "istio-cni", "name": "from a file"}`,
		},
		{
			name: "the text, where there is no file", env: map[string]string{"CNI_NETWORK_CONFIG": `{"type": "istio-cni"}`, "CNI_NETWORK_CONFIG_FILE": file + "x"},
			want: `{"type": "istio-cni"}`,
		},
		{
			name: "a value is quoted", env: map[string]string{"CNI_NETWORK_CONFIG": `{"type": "istio-cni", "a": "__KUBERNETES_SERVICE_HOST__"}`, "KUBERNETES_SERVICE_HOST": `a"b\c`},
			want: `{"type": "istio-cni", "a": "a\"b\\c"}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := mustLoad(t, test.env).TemplateEntry()
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]json.RawMessage
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain(t, want), plain(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func plain(t *testing.T, entry map[string]json.RawMessage) (value any) {
	t.Helper()
	text, err := json.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestBadTemplates(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		strings.ReplaceAll(istio118, "__LOG_LEVEL__", "__LOGLEVEL__"): "__LOGLEVEL__ is not a placeholder; those are __KUBECONFIG_FILENAME__, __KUBECONFIG_FILEPATH__,",
		`{"type": "istio-cni", "token": "__SERVICEACCOUNT_TOKEN__"}`:  "no token goes into a CNI configuration",
		`{"type": "istio-cni", "node": "__KUBERNETES_NODE_NAME__"}`:   "__KUBERNETES_NODE_NAME__: set node-name",
		`{"type": "istio-cni"`:                                          "it is not a JSON object",
		`{"name": "x", "plugins": [{"type": "istio-cni"}]}`:             "write the entry of istio-cni by itself",
		`{"type": "bridge"}`:                                            `type is "bridge"`,
		`{"type": "istio-cni", "log_level": "loud"}`:                    `plugin_log_level is "loud"`,
		`{"type": "istio-cni", "kubernetes": {"kubeconfig": "conf"}}`:   "should be an absolute path",
		`{"type": "istio-cni", "fail_policy": {"default": "whatever"}}`: "fail_policy.default",
	} {
		wantErrors(t, map[string]string{"CNI_NETWORK_CONFIG": template}, nil, "invalid settings: ", "cni-network-config: ", want)
	}
	wantErrors(t, map[string]string{"CNI_NETWORK_CONFIG_FILE": "/no/such/template"}, nil, "/no/such/template: no such file")
}

func TestWhereTheKubeconfigIs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env          map[string]string
		path, onNode string
	}{
		{nil, "/var/run/istio-cni/istio-cni-kubeconfig", "/var/run/istio-cni/istio-cni-kubeconfig"},
		{map[string]string{"KUBECFG_FILE_NAME": "a-kubeconfig"}, "/host/etc/cni/net.d/a-kubeconfig", "/etc/cni/net.d/a-kubeconfig"},
		{map[string]string{"CNI_NETWORK_CONFIG": istio118}, "/host/etc/cni/net.d/ZZZ-istio-cni-kubeconfig", "/etc/cni/net.d/ZZZ-istio-cni-kubeconfig"},
		{map[string]string{"CNI_NETWORK_CONFIG": istio118, "PLUGIN_KUBECONFIG": "/k"}, "/host/etc/cni/net.d/ZZZ-istio-cni-kubeconfig", "/k"},
		{map[string]string{"LOG_UDS_ADDRESS": "/run/x/log.sock"}, "/run/x/istio-cni-kubeconfig", "/run/x/istio-cni-kubeconfig"},
	} {
		s := mustLoad(t, test.env)
		if s.KubeconfigPath() != test.path || s.KubeconfigOnNode() != test.onNode {
			t.Errorf("%v: %s, on the node %s", test.env, s.KubeconfigPath(), s.KubeconfigOnNode())
		}
	}
	wantErrors(t, map[string]string{"LOG_UDS_ADDRESS": "/run/x/log.sock", "CNI_AGENT_RUN_DIR": "/run/y"}, nil, "it is not in cni-agent-run-dir, /run/y")
}
