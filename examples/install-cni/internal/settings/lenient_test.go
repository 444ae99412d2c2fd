// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// lenient loads settings from files and flags as a command does that must work while the daemon
// does. The daemon works with the recorded values, if there are any.
func lenient(t *testing.T, recorded, files map[string]string, args ...string) (Loaded, []error, error) {
	t.Helper()
	runDir, directory := t.TempDir(), t.TempDir()
	for name, value := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if recorded != nil {
		var report Report
		for name, value := range recorded {
			report.Settings = append(report.Settings, ReportedValue{Name: name, Value: value})
		}
		text, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(runDir, RecordName), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := &cobra.Command{}
	AddFlags(command)
	if err := command.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return LoadLeniently(command, []string{"CNI_AGENT_RUN_DIR=" + runDir, "SETTINGS_DIR=" + directory})
}

func TestABadValueIsReplaced(t *testing.T) {
	t.Parallel()
	const name = "exclude-namespaces"
	for which, test := range map[string]struct {
		recorded map[string]string
		want     []string
		said     string
	}{
		"by the daemon's":              {map[string]string{name: "a,b"}, []string{"a", "b"}, `"a,b" is used instead, from the running daemon`},
		"by the default":               {nil, []string{}, `"" is used instead, from default`},
		"by the default for a bad one": {map[string]string{name: "B"}, []string{}, `"" is used instead, from default`},
	} {
		loaded, refused, err := lenient(t, test.recorded, map[string]string{name: "Bad", "fail-policy": "open"})
		if s := loaded.Settings; err != nil || !slices.Equal(s.ExcludeNamespaces, test.want) || s.FailPolicy.Default != "open" {
			t.Errorf("%s: %q, %q, %v", which, s.ExcludeNamespaces, s.FailPolicy.Default, err)
		}
		if text := errors.Join(refused...); len(refused) != 1 || !strings.Contains(text.Error(), name+`="Bad"`) || !strings.Contains(text.Error(), test.said) {
			t.Errorf("%s: warnings %v", which, refused)
		}
		if report := loaded.Report().Refused(); len(report) != 1 || report[0].Name != name || report[0].Offer.Value != "Bad" {
			t.Errorf("%s: reported %+v", which, report)
		}
	}
	if loaded, refused, err := lenient(t, nil, map[string]string{"fail-policy": "open"}); err != nil || refused != nil || loaded.Report().Refused() != nil {
		t.Errorf("good values: %v, %v", refused, err)
	}
	if _, refused, err := lenient(t, nil, nil, "--settings-dir=settings"); err == nil {
		t.Errorf("a bad flag: %v", refused)
	}
}

// TestContradictionsAreForgiven has values that are good alone.
func TestContradictionsAreForgiven(t *testing.T) {
	t.Parallel()
	files := map[string]string{"fail-open-namespaces": "a", "fail-closed-namespaces": "a"}
	loaded, refused, err := lenient(t, map[string]string{"fail-open-namespaces": "a", "fail-closed-namespaces": "b"}, files, "--log_as_json")
	if s := loaded.Settings; err != nil || !slices.Equal(s.FailPolicy.Closed, []string{"b"}) || len(refused) != 2 || !s.LogJSON {
		t.Errorf("with a daemon: %q, %v, %v", s.FailPolicy.Closed, refused, err)
	}
	if loaded, refused, err := lenient(t, nil, files); err != nil || len(refused) != 1 || loaded.Settings.RunDir == "" {
		t.Errorf("without a daemon: %v, %v", refused, err)
	}
	_, _, err = lenient(t, nil, map[string]string{"fail-open-namespaces": "a"}, "--fail-closed-namespaces=a")
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a flag that contradicts a file: %v", err)
	}
}

// TestAnUnreadableDirectoryIsForgiven: a settings directory that is a file.
func TestAnUnreadableDirectoryIsForgiven(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if loaded, refused, err := lenient(t, nil, nil, "--settings-dir="+path); err != nil || len(refused) != 1 || loaded.Settings.RunDir == "" {
		t.Errorf("%v, %v", refused, err)
	}
}
