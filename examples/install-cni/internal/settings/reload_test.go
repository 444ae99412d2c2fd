// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirectory(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	write(t, directory, map[string]string{
		"exclude-namespaces": "a,b\n", "CNI_CONF_NAME": "10-file.conflist", "native-nftables": "true", "REVISION": "x", "exclude-namespace": "c",
	})
	if err := os.Symlink("..data/none", filepath.Join(directory, "..2026")); err != nil {
		t.Fatal(err)
	}
	l, err := loadAll(t, map[string]string{
		"SETTINGS_DIR": directory, "CNI_CONF_NAME": "10-env.conflist", "POD_NAMESPACE": "istio-system", "CNI_X_SERVICE_PORT_HTTP": "80",
		"CNI_PORT": "tcp://10.0.0.1:80", "REPAIR_PODS": "true", "EXCLUDE_NAMESPACE": "d", "CURRENT_AGENT_VERSION": "1.31", "HOME": "/",
	}, "--native-nftables=false")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range l.Values {
		if v.Source.Given() {
			got[v.Setting.Name] = v.Text + " from " + strings.ReplaceAll(v.Source.String(), directory, "DIR")
		}
	}
	want := map[string]string{
		"settings-dir":       directory + " from environment SETTINGS_DIR",
		"exclude-namespaces": "a,b from file DIR/exclude-namespaces",
		"cni-conf-name":      "10-file.conflist from file DIR/CNI_CONF_NAME",
		"native-nftables":    "false from flag --native-nftables",
		"pod-namespace":      "istio-system from environment POD_NAMESPACE",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	unknown := []string{"EXCLUDE_NAMESPACE (did you mean EXCLUDE_NAMESPACES?)", "REPAIR_PODS", filepath.Join(directory, "exclude-namespace")}
	if diff := cmp.Diff(unknown, l.Unknown); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

func TestOtherNamesOfVariables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"NODE_NAME", "KUBERNETES_NODE_NAME", "REPAIR_NODE_NAME"} {
		if got := mustLoad(t, map[string]string{name: "n"}).NodeName; got != "n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := mustLoad(t, map[string]string{"NODE_NAME": "", "REPAIR_NODE_NAME": "n"}).NodeName; got != "" {
		t.Errorf("the first name that is set counts, and gave %q", got)
	}
}

func TestBadDirectory(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	write(t, directory, map[string]string{"fail-policy": "ajar"})
	wantErrors(t, map[string]string{"SETTINGS_DIR": directory}, nil, "file "+filepath.Join(directory, "fail-policy")+`="ajar": write one of`)
	wantErrors(t, map[string]string{"SETTINGS_DIR": "relative"}, nil, `environment SETTINGS_DIR="relative": write an absolute path`)
	write(t, directory, map[string]string{"fail-policy": strings.Repeat("x", maxFile+1)})
	wantErrors(t, map[string]string{"SETTINGS_DIR": directory}, nil, "larger than the limit of 1048576 bytes")
	if err := os.Remove(filepath.Join(directory, "fail-policy")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(directory, "fail-policy"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantErrors(t, map[string]string{"SETTINGS_DIR": directory}, nil, "is not a regular file")
}

func TestReload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		before, after map[string]string
		inEffect      map[string]string // text by name, of those that are not at their default
		offers        map[string]string // text, and an error
	}{
		{name: "nothing", before: map[string]string{"fail-policy": "open"}, after: map[string]string{"fail-policy": "open"}, inEffect: map[string]string{"fail-policy": "open"}},
		{
			name: "live", before: map[string]string{"exclude-namespaces": "a"},
			after:    map[string]string{"exclude-namespaces": "a,b", "fail-policy": "open", "log_output_level": "debug"},
			inEffect: map[string]string{"exclude-namespaces": "a,b", "fail-policy": "open", "log_output_level": "debug"},
		},
		{name: "back to the default", before: map[string]string{"fail-policy": "open"}, after: map[string]string{}, inEffect: map[string]string{}},
		{
			name: "not live", before: map[string]string{"health-address": ":1"}, after: map[string]string{"health-address": ":2", "fail-policy": "open"},
			inEffect: map[string]string{"health-address": ":1", "fail-policy": "open"}, offers: map[string]string{"health-address": ":2"},
		},
		{
			name: "bad values", before: map[string]string{"fail-policy": "open", "health-address": ":1"},
			after:    map[string]string{"fail-policy": "ajar", "health-address": "none", "exclude-namespaces": "b"},
			inEffect: map[string]string{"fail-policy": "open", "health-address": ":1", "exclude-namespaces": "b"},
			offers:   map[string]string{"fail-policy": `ajar: write one of`, "health-address": "none: write host:port"},
		},
		{
			name: "values that don't go together", before: map[string]string{"fail-open-namespaces": "a", "status-policy": "off"},
			after:    map[string]string{"fail-open-namespaces": "a", "fail-closed-namespaces": "a", "status-policy": "strict"},
			inEffect: map[string]string{"fail-open-namespaces": "a", "status-policy": "off"},
			offers:   map[string]string{"fail-closed-namespaces": "a: it contradicts other settings", "status-policy": "strict: it contradicts other settings"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			write(t, directory, test.before)
			first, err := loadAll(t, map[string]string{"SETTINGS_DIR": directory})
			if err != nil {
				t.Fatal(err)
			}
			for name := range test.before {
				if err := os.Remove(filepath.Join(directory, name)); err != nil {
					t.Fatal(err)
				}
			}
			write(t, directory, test.after)
			second, err := first.Reload()
			if err != nil {
				t.Fatal(err)
			}
			wantValues(t, second, test.inEffect, test.offers)
			if third, err := second.Reload(); err != nil || len(third.Values) != len(second.Values) {
				t.Errorf("once more: %v", err)
			} else {
				wantValues(t, third, test.inEffect, test.offers)
			}
			write(t, directory, test.before)
			for name := range test.after {
				if _, ok := test.before[name]; !ok {
					if err := os.Remove(filepath.Join(directory, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			back, err := second.Reload()
			if err != nil {
				t.Fatal(err)
			}
			wantValues(t, back, test.before, nil)
			if diff := cmp.Diff(first.Settings, back.Settings); diff != "" {
				t.Errorf("back again (-first +back):\n%s", diff)
			}
		})
	}
}

func TestReloadOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	write(t, directory, map[string]string{"fail-policy": "open"})
	first, err := loadAll(t, map[string]string{"SETTINGS_DIR": directory})
	if err != nil {
		t.Fatal(err)
	}
	write(t, directory, map[string]string{"fail-policy": "closed", "status-policy": strings.Repeat("x", maxFile+1)})
	second, err := first.Reload()
	if err == nil || second.Settings.FailPolicy.Default != "open" {
		t.Errorf("%v, and fail-policy %q", err, second.Settings.FailPolicy.Default)
	}
}

func wantValues(t *testing.T, l Loaded, inEffect, offers map[string]string) {
	t.Helper()
	got, offered := map[string]string{}, map[string]string{}
	for _, v := range l.Values {
		if v.Text != v.Setting.Default && v.Setting.Name != DirectorySetting {
			got[v.Setting.Name] = v.Text
		}
		if v.Offer == nil {
			continue
		}
		offered[v.Setting.Name] = v.Offer.Text
		if err := v.Offer.Err; err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error of %s: %v", v.Setting.Name, err)
			}
			offered[v.Setting.Name] += ": " + strings.SplitN(err.Error(), "\": ", 2)[1]
		}
	}
	if diff := cmp.Diff(inEffect, got); diff != "" {
		t.Errorf("in effect (-want +got):\n%s", diff)
	}
	for name, want := range offers {
		if !strings.HasPrefix(offered[name], want) {
			t.Errorf("offer of %s: %q, want %q", name, offered[name], want)
		}
	}
	if len(offers) != len(offered) {
		t.Errorf("offers %v, want %v", offered, offers)
	}
}

// write writes files of a settings directory.
func write(t *testing.T, directory string, values map[string]string) {
	t.Helper()
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLiveSettings lists the live settings by name: check for each that a change takes effect.
func TestLiveSettings(t *testing.T) {
	t.Parallel()
	want := []string{
		"abandoned-after", "cni-network-config", "dataplane", "exclude-namespaces", "fail-closed-namespaces", "fail-open-namespaces", "fail-policy", "log-level", "log_output_level", "native-nftables",
		"plugin-kubeconfig", "plugin-proc-root", "plugin-timeout", "status-policy",
	}
	var got []string
	for _, s := range All() {
		if s.Live {
			got = append(got, s.Name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("live settings (-want +got):\n%s", diff)
	}
}
