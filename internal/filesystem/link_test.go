// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// TestFollow resolves links in a directory that a program on the node knows as /etc/cni/net.d.
func TestFollow(t *testing.T) {
	t.Parallel()
	d := filesystem.Directory{Path: t.TempDir()}
	for _, above := range []string{"v1/deep", "v2"} {
		if err := os.MkdirAll(d.In(above), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"plain", "v1/real", "v1/deep/real"} {
		if err := os.WriteFile(d.In(file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"beside": "plain", "below": "v1/real", "absolute": "/etc/cni/net.d/v1/real", "odd": "//etc/./cni/net.d//v1/../plain",
		"chain": "below", "data": "v1", "through": "data/real", "v1/up": "../plain", "v1/same": "real", "within": "v1/same", "upwards": "v1/up",
		"deeper": "data/deep/../deep/real", "directory": "v1", "itself": ".", "whole": "/etc/cni/net.d",
		"dangling": "missing", "dangling-below": "missing/real", "not-below": "plain/real", "gone-in-v2": "/etc/cni/net.d/v2/real", "late": "below/x",
		"circle": "circle", "circle-of-two": "circle-back", "circle-back": "circle-of-two",
		"elsewhere": "/opt/x/real", "namesake": "/etc/cni/net.d2/real", "parent": "/etc/cni", "up-and-back": "../net.d/plain", "up": "v1/../../real",
		"sneaky": "/etc/cni/net.d/../real", "mounted": filepath.Join(d.Path, "plain"), "by-another": "elsewhere",
	} {
		if err := os.Symlink(target, d.In(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]struct {
		target  string
		through string
		err     error
	}{
		"plain":          {"plain", "plain", nil},
		"v1/real":        {"v1/real", "v1/real", nil},
		"beside":         {"plain", "beside plain", nil},
		"below":          {"v1/real", "below v1/real", nil},
		"absolute":       {"v1/real", "absolute v1/real", nil},
		"odd":            {"plain", "odd plain", nil},
		"chain":          {"v1/real", "chain below v1/real", nil},
		"through":        {"v1/real", "through data v1/real", nil},
		"data/real":      {"v1/real", "data v1/real", nil},
		"within":         {"v1/real", "within v1/same v1/real", nil},
		"upwards":        {"plain", "upwards v1/up plain", nil},
		"deeper":         {"v1/deep/real", "deeper data v1/deep/real", nil},
		"directory":      {"v1", "directory v1", nil},
		"itself":         {".", "itself .", nil},
		"whole":          {".", "whole .", nil},
		"missing":        {"", "missing", filesystem.ErrNowhere},
		"dangling":       {"", "dangling missing", filesystem.ErrNowhere},
		"dangling-below": {"", "dangling-below missing", filesystem.ErrNowhere},
		"not-below":      {"", "not-below plain", filesystem.ErrNowhere},
		"gone-in-v2":     {"", "gone-in-v2 v2/real", filesystem.ErrNowhere},
		"late":           {"", "late below v1/real", filesystem.ErrNowhere},
		"circle":         {"", "", filesystem.ErrNowhere},
		"circle-of-two":  {"", "", filesystem.ErrNowhere},
		"elsewhere":      {"", "elsewhere", filesystem.ErrOutside},
		"by-another":     {"", "by-another elsewhere", filesystem.ErrOutside},
		"namesake":       {"", "namesake", filesystem.ErrOutside},
		"parent":         {"", "parent", filesystem.ErrOutside},
		"up-and-back":    {"", "up-and-back", filesystem.ErrOutside},
		"up":             {"", "up", filesystem.ErrOutside},
		"sneaky":         {"", "sneaky", filesystem.ErrOutside},
		"mounted":        {"", "mounted", filesystem.ErrOutside},
	} {
		got, err := d.Follow(name, "/etc/cni/net.d")
		if got.Target != want.target || !errors.Is(err, want.err) || want.err == nil && err != nil {
			t.Errorf("%s leads to %q, %v; want %q, %v", name, got.Target, err, want.target, want.err)
		}
		if diff := cmp.Diff(strings.Fields(want.through), got.Through); diff != "" && want.through != "" {
			t.Errorf("%s, through (-want +got):\n%s", name, diff)
		}
	}
	if _, err := d.Follow("absolute", ""); !errors.Is(err, filesystem.ErrOutside) {
		t.Errorf("an absolute target without a known path of the directory: %v", err)
	}
	if _, err := (filesystem.Directory{Path: d.In("missing")}).Follow("x", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that isn't there: %v", err)
	}
}
