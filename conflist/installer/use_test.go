// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"strings"
	"testing"
)

func TestUse(t *testing.T) {
	t.Parallel()
	i, err := New(plugged(func(o *Options) { o.BinDir, o.Owner, o.SourceDir, o.ClaimName = "/bin1", "first", "/source1", "claim" }))
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Use(plugged(func(o *Options) { o.BinDir, o.Owner, o.SourceDir = "/bin1", "second", "/source2" })); err != nil {
		t.Fatal(err)
	}
	i.refresh(t.Context())
	if o := i.options; o.BinDir != "/bin1" || o.Owner != "first" || o.SourceDir != "/source2" || o.ClaimName != "claim" {
		t.Errorf("options %+v", o)
	}
}

// TestUseRefuses has options that the parts of an installer cannot change to. They change nothing.
func TestUseRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want          string
		before, after func(*Options)
	}{
		"a wrong path":           {"EntryDirs has", nil, func(o *Options) { o.EntryDirs = []string{"x"} }},
		"NetDir":                 {"NetDir has", nil, func(o *Options) { o.NetDir = "/other" }},
		"NodeNetDir":             {"NodeNetDir has", nil, func(o *Options) { o.NodeNetDir = "/other" }},
		"BinDir":                 {"BinDir has", nil, func(o *Options) { o.BinDir = "/other" }},
		"BinDir, left out":       {"BinDir has", func(o *Options) { o.BinDir = "/bin1" }, nil},
		"RunDir":                 {"RunDir has", nil, func(o *Options) { o.RunDir = "/other" }},
		"CacheDir":               {"CacheDir has", nil, func(o *Options) { o.CacheDir = "/other" }},
		"a SourceDir":            {"SourceDir is new", nil, func(o *Options) { o.SourceDir = "/source" }},
		"a SourceDir no longer":  {"SourceDir is missing", func(o *Options) { o.SourceDir = "/source" }, nil},
		"a kubeconfig":           {"Kubeconfig is new", nil, func(o *Options) { o.Kubeconfig = &Kubeconfig{} }},
		"a kubeconfig no longer": {"Kubeconfig is missing", func(o *Options) { o.Kubeconfig = &Kubeconfig{} }, nil},
		"two, and both are told": {"RunDir has", nil, func(o *Options) { o.NetDir, o.RunDir = "/other", "/other" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := func(change func(*Options)) Options {
				if change == nil {
					change = func(*Options) {}
				}
				return plugged(change)
			}
			i, err := New(options(test.before))
			if err != nil {
				t.Fatal(err)
			}
			before := i.latest.Load()
			if err := i.Use(options(test.after)); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Use: %v, want %q", err, test.want)
			}
			if i.latest.Load() != before {
				t.Error("the options are others")
			}
		})
	}
}

// TestUseLeavesTheKubeconfigAlone checks that a part that has begun continues after options without
// a kubeconfig were refused.
func TestUseLeavesTheKubeconfigAlone(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.Kubeconfig = n.kubeconfig()
	i := n.installer()
	part := i.kubeconfig()
	if _, err := part.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	without := n.options
	without.Kubeconfig = nil
	if err := i.Use(without); !errors.Is(err, ErrOptions) {
		t.Errorf("Use without a kubeconfig: %v", err)
	}
	if result, err := part.Ensure(t.Context()); result != Right || err != nil {
		t.Errorf("the part: %v, %v", result, err)
	}
}
