// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

func plugged(change func(*Options)) Options {
	o := Options{Want: reconciler.Want{Plugin: conflist.Plugin{Type: "linkmesh-cni"}}}
	change(&o)
	return o
}

// TestZeroOptions checks the documented default of each empty field.
func TestZeroOptions(t *testing.T) {
	t.Parallel()
	got := plugged(func(o *Options) { o.Kubeconfig = &Kubeconfig{} }).filled()
	want := Options{
		Want: reconciler.Want{Plugin: conflist.Plugin{Type: "linkmesh-cni", Body: []byte(`{"type":"linkmesh-cni"}`)}}, Builds: []string{"linkmesh-cni"},
		NetDir: "/etc/cni/net.d", NodeNetDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", RunDir: "/var/run/linkmesh-cni", CacheDir: "/var/lib/cni",
		ClaimName: "linkmesh-cni.claim", Owner: "linkmesh-cni",
		Kubeconfig: &Kubeconfig{
			Path: "/var/run/linkmesh-cni/linkmesh-cni-kubeconfig", Mode: 0o600, User: "linkmesh-cni",
			TokenFile: serviceAccountToken, CAFile: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Options{}, "Now", "OnEvent", "OnRestore", "OnTake")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Now == nil || got.OnEvent == nil || got.OnRestore == nil || got.OnTake == nil {
		t.Error("a function is missing")
	}
	if err := got.validate(); err != nil {
		t.Error(err)
	}
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"Want.Plugin.Type is empty":         {},
		"Want.Plugin.Type has":              plugged(func(o *Options) { o.Want.Plugin.Type = "../x" }),
		"ClaimName has":                     plugged(func(o *Options) { o.ClaimName = "a/b" }),
		"ClaimName is \"linkmesh-cni\"":     plugged(func(o *Options) { o.ClaimName = "linkmesh-cni" }),
		"has the type \"other-cni\"":        plugged(func(o *Options) { o.Want.Plugin.Body = []byte(`{"type": "other-cni"}`) }),
		"nonsense":                          plugged(func(o *Options) { o.Want.Mode = "nonsense" }),
		"the primary \"x/y\"":               plugged(func(o *Options) { o.Want.Primary = "x/y" }),
		"the file \"x/y\"":                  plugged(func(o *Options) { o.Want.Mode, o.Want.File = reconciler.Owned, "x/y" }),
		"Builds has":                        plugged(func(o *Options) { o.Builds = []string{"a/b"} }),
		"Records has":                       plugged(func(o *Options) { o.Records = []string{".."} }),
		"NetDir has":                        plugged(func(o *Options) { o.NetDir = "etc/cni" }),
		"BinDir has \"/opt/../bin\"":        plugged(func(o *Options) { o.BinDir = "/opt/../bin" }),
		"EntryDirs has":                     plugged(func(o *Options) { o.EntryDirs = []string{"x"} }),
		"Sockets has":                       plugged(func(o *Options) { o.Sockets = []string{"../x"} }),
		"Kubeconfig.TokenFile has":          plugged(func(o *Options) { o.Kubeconfig = &Kubeconfig{TokenFile: "token"} }),
		"name must end in kubeconfig":       plugged(func(o *Options) { o.Kubeconfig = &Kubeconfig{Path: "/etc/passwd"} }),
		"Kubeconfig.Mode: it is 0644":       plugged(func(o *Options) { o.Kubeconfig = &Kubeconfig{Mode: 0o644} }),
		"Kubeconfig.Mode: it is 0666":       plugged(func(o *Options) { o.Kubeconfig = &Kubeconfig{Mode: 0o666} }),
		"Kubeconfig.Mode: it is 0240":       plugged(func(o *Options) { o.Kubeconfig = &Kubeconfig{Mode: 0o240} }),
		"EntryDirs has \"y\": write an abs": plugged(func(o *Options) { o.SourceDir, o.EntryDirs = "x", []string{"y"} }), // all are reported
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
}

// TestEntryTakesThePlaceOfTheBody has an invalid body that is not used.
func TestEntryTakesThePlaceOfTheBody(t *testing.T) {
	t.Parallel()
	_, err := New(plugged(func(o *Options) {
		o.Want.Plugin.Body = []byte(`{"type": "other-cni"}`)
		o.Entry = func(context.Context) (json.RawMessage, error) { return nil, nil }
	}))
	if err != nil {
		t.Error(err)
	}
}
