// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/meshcni/meshcni/internal/jsonreader"
)

func sameConfig(t *testing.T, text []byte) (understood bool) {
	t.Helper()
	var got, want Config
	if !jsonreader.Read(text, got.read) {
		return false
	}
	if err := json.Unmarshal(text, &want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s\ngot  %+v\nwant %+v, %v", text, got, want, err)
	}
	return true
}

func usualConfig() string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "istio-cni", "prevResult": {"ips": [{"address": "10.0.0.1/24"}], "dns": {}},
		"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "\"b\""}}, "capabilities": {"io.kubernetes.cri.pod-annotations": true},
		"plugin_log_level": "info", "cni_agent_run_dir": "/var/run/istio-cni", "ambient_enabled": true, "exclude_namespaces": ["a", "b"],
		"pod_namespace": "istio-system", "native_nftables": true, "enablement_selectors": [{"podSelector": {}}], "log_level": "warn",
		"log_uds_address": "/x/log.sock", "kubernetes": {"kubeconfig": "/k", "exclude_namespaces": [], "intercept_type": "iptables"},
		"kubeconfig": "/kubeconfig", "dataplane": "auto", "agent_name": "agent", "proc_root": "/host/proc", "timeout": "10s",
		"fail_policy": {"default": "open", "open": ["a"], "closed": ["b"]}, "status_policy": "strict", "abandoned_after": "2h"}`
}

// TestUsualIsReadWithoutReflection has every key, so that one that was forgotten in one of the two is found.
func TestUsualIsReadWithoutReflection(t *testing.T) {
	t.Parallel()
	if !sameConfig(t, []byte(usualConfig())) {
		t.Error("it is left to encoding/json")
	}
	var c Config
	if err := json.Unmarshal([]byte(usualConfig()), &c); err != nil {
		t.Fatal(err)
	}
	for value, fields := reflect.ValueOf(c), reflect.VisibleFields(reflect.TypeFor[Config]()); len(fields) > 0; fields = fields[1:] {
		if fields[0].Tag.Get("json") != "-" && value.FieldByIndex(fields[0].Index).IsZero() {
			t.Errorf("nothing is there for %s", fields[0].Name)
		}
	}
}

func TestUnusualIsReadAsWell(t *testing.T) {
	t.Parallel()
	c, err := Decode([]byte(`{"NAME": "a", "timeout": null, "exclude_namespaces": ["a"], "exclude_namespaces": ["b"], "name": "\ud83d\ude00"}`))
	if err != nil || c.Name != "😀" || c.Timeout != "" || len(c.ExcludeNamespaces) != 1 || c.ExcludeNamespaces[0] != "b" {
		t.Errorf("got %+v, %v", c, err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(usualConfig()))
	f.Fuzz(func(t *testing.T, text []byte) { sameConfig(t, text) })
}
