// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// DirectorySetting is the name of the setting for the settings directory, and DefaultDirectory is
// its default.
const (
	DirectorySetting = "settings-dir"
	DefaultDirectory = "/etc/install-cni"
)

// maxFile bounds a file of the settings directory; a ConfigMap has 1 MiB in all.
const maxFile = 1 << 20

// files are the values in a settings directory, by file name.
type files struct {
	path   string
	values map[string]string
}

// readDirectory reads a settings directory, one value from each file. A mounted ConfigMap is a
// directory of links; names that begin with a dot are the kubelet's. A missing directory, or an
// empty path, has no files.
func readDirectory(path string) (files, error) {
	found := files{path, map[string]string{}}
	if path == "" {
		return found, nil
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("read the settings directory: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		value, err := readFile(filepath.Join(path, entry.Name()))
		if err != nil {
			return found, fmt.Errorf("read a setting: %w", err)
		}
		found.values[entry.Name()] = value
	}
	return found, nil
}

// readFile reads one value, without the final newline that editors add.
func readFile(path string) (string, error) {
	data, err := filesystem.ReadThroughLinks(path, maxFile)
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), err
}

// value looks up a setting by its name or its variable: a ConfigMap made for the environment works
// unchanged.
func (f files) value(s Setting) (value string, source Source, found bool) {
	if s.Name == DirectorySetting {
		return "", Source{}, false
	}
	for _, name := range append([]string{s.Name}, s.Envs()...) {
		if value, ok := f.values[name]; ok {
			return value, Source{kindFile, filepath.Join(f.path, name)}, true
		}
	}
	return "", Source{}, false
}

// strangers returns the files that are not settings.
func (f files) strangers() []string {
	var found []string
	for name := range f.values {
		known := slices.Contains(unread(), name) || slices.ContainsFunc(All(), func(s Setting) bool {
			return s.Name != DirectorySetting && (s.Name == name || slices.Contains(s.Envs(), name))
		})
		if !known {
			found = append(found, filepath.Join(f.path, name))
		}
	}
	slices.Sort(found)
	return found
}
