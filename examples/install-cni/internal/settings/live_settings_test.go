// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

func loaded(t *testing.T, directory, runDir string, environ ...string) settings.Loaded {
	t.Helper()
	environ = append(environ, "SETTINGS_DIR="+directory, "CNI_AGENT_RUN_DIR="+runDir)
	var l settings.Loaded
	var err error
	command := &cobra.Command{Run: func(command *cobra.Command, _ []string) {
		l, err = settings.Load(command, environ)
	}}
	settings.AddFlags(command)
	command.SetArgs([]string{})
	if executeErr := command.Execute(); err != nil || executeErr != nil {
		t.Fatal(err, executeErr)
	}
	return l
}

func TestEachNewsOnce(t *testing.T) {
	t.Parallel()
	directory, runDir := t.TempDir(), t.TempDir()
	var log bytes.Buffer
	used := 0
	part := settings.NewLive(loaded(t, directory, runDir), slog.New(slog.NewTextHandler(&log, nil)), nil, func(settings.Settings) { used++ })
	for _, step := range []struct {
		name, value string
		changed     bool
		says        string
	}{
		{"fail-policy", "open", true, "a setting has changed"},
		{"fail-policy", "open", false, ""},
		{"fail-policy", "ajar", false, "a new value is refused"},
		{"fail-policy", "ajar", false, ""},
		{"pod-name", "x", false, "with the next start"},
		{"pod-name", "x", false, ""},
		{"fail-policy", "closed", true, "a setting has changed"},
		{"status-policy", strings.Repeat("x", 2<<20), false, "can't be read"},
	} {
		if err := os.WriteFile(filepath.Join(directory, step.name), []byte(step.value), 0o600); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		outcome, err := part.Ensure(t.Context())
		changed := outcome == installer.Wrote
		if err != nil || changed != step.changed || !strings.Contains(log.String(), step.says) || (step.says == "") != (log.Len() == 0) {
			t.Errorf("%s=%.9s: changed %v, %v, log:\n%s", step.name, step.value, changed, err, &log)
		}
	}
	if used != 2 {
		t.Errorf("used %d times", used)
	}
}

// TestNewsOfTheTemplate changes the template's file alone, to good and bad entries, and once
// together with a setting, which takes effect although the template doesn't.
func TestNewsOfTheTemplate(t *testing.T) {
	t.Parallel()
	directory, runDir, templates := t.TempDir(), t.TempDir(), t.TempDir()
	file := filepath.Join(templates, "template")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	excludes := func(namespace string) string {
		return `{"type":"istio-cni","exclude_namespaces":["` + namespace + `"]}`
	}
	write(file, excludes("bank"))
	var log bytes.Buffer
	var now settings.Settings
	part := settings.NewLive(loaded(t, directory, runDir, "CNI_NETWORK_CONFIG_FILE="+file), slog.New(slog.NewTextHandler(&log, nil)), nil,
		func(s settings.Settings) { now = s })
	if got := part.Directories(); !slices.Equal(got, []string{directory, templates}) || !part.Concerns(filepath.Join(templates, "..data")) {
		t.Errorf("directories %v", got)
	}
	for _, step := range []struct {
		path, text string
		changed    bool
		says       string
		excluded   string
	}{
		{file, excludes("shop"), true, "the template for the plugin's entry has changed", "shop"},
		{file, excludes("shop"), false, "", "shop"},
		{file, `{"type":`, false, "a new value is refused", "shop"},
		{file, `{"type":`, false, "", "shop"},
		{file, `{"type":"bridge"}`, false, `type is \"bridge\"`, "shop"},
		{filepath.Join(directory, "fail-policy"), "open", true, "a setting has changed", "shop"},
		{filepath.Join(directory, "fail-closed-namespaces"), "a", true, "a setting has changed", "shop"},
		{filepath.Join(directory, "fail-open-namespaces"), "a", false, "it contradicts other settings", "shop"},
		{file, excludes("bank"), true, "the template for the plugin's entry has changed", "bank"},
		{filepath.Join(directory, "cni-network-config-file"), file + "-2", false, "can't change while the daemon runs", "bank"},
		{file, `{"type":`, false, "", "bank"}, // the other file waits for the next start
	} {
		write(step.path, step.text)
		log.Reset()
		outcome, err := part.Ensure(t.Context())
		changed := outcome == installer.Wrote
		if err != nil || changed != step.changed || !strings.Contains(log.String(), step.says) || (step.says == "") != (log.Len() == 0) {
			t.Errorf("%s=%s: changed %v, %v, log:\n%s", step.path, step.text, changed, err, &log)
		}
		// As a restarted program asks, with whatever is in the file.
		plugin, err := now.PluginConfig()
		if err != nil || !slices.Equal(plugin.ExcludeNamespaces, []string{step.excluded}) {
			t.Errorf("%s=%s: the plugin leaves %v alone, %v", step.path, step.text, plugin.ExcludeNamespaces, err)
		}
	}
	if now.FailPolicy.Default != "open" {
		t.Errorf("fail-policy %q", now.FailPolicy.Default)
	}
}

func TestWhatIsWatched(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	part := settings.NewLive(loaded(t, directory, directory+"-run"), slog.New(slog.DiscardHandler), nil, func(settings.Settings) {})
	if got := part.Directories(); len(got) != 1 || got[0] != directory || !part.Concerns(filepath.Join(directory, "..data")) {
		t.Errorf("directories %v", got)
	}
	if part.Concerns("/etc/passwd") {
		t.Error("a file elsewhere concerns it")
	}
	missing := settings.NewLive(loaded(t, directory+"-missing", directory+"-run"), slog.New(slog.DiscardHandler), nil, func(settings.Settings) {})
	if got := missing.Directories(); len(got) != 0 {
		t.Errorf("a missing directory is watched: %v", got)
	}
	if outcome, err := missing.Ensure(t.Context()); outcome != installer.Right || err != nil {
		t.Errorf("without directories: %v, %v", outcome, err)
	}
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	runDir := t.TempDir()
	if err := os.WriteFile(filepath.Join(runDir, settings.RecordName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Recorded(runDir); err == nil || !strings.Contains(err.Error(), settings.RecordName) {
		t.Errorf("error %v", err)
	}
}
