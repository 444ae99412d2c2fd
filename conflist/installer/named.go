// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// named returns the CNI configurations that name the plugin: those with which a runtime creates
// pods, and the broken ones that no runtime can load. It follows links, as runtimes do, and reads
// the directories of networks.
func (i *Installer) named() (loaded, broken []string, err error) {
	files, err := configurations(i.options.NetDir)
	if err != nil {
		return nil, nil, fmt.Errorf("list the CNI configurations: %w", explain(err))
	}
	for _, path := range files {
		doc, err := i.readAsRuntimes(path)
		switch {
		case isMissing(err), errors.Is(err, filesystem.ErrNowhere), errors.Is(err, filesystem.ErrNotRegular),
			errors.Is(err, filesystem.ErrTooLarge):
			continue // it leads to nothing that could be loaded
		case err != nil:
			return nil, nil, err
		case !bytes.Contains(doc, []byte(i.options.plugin())):
			continue
		}
		switch uses, err := usesPlugin(doc, i.options.plugin()); {
		case err != nil:
			broken = append(broken, filepath.Base(path))
		case uses:
			loaded = append(loaded, filepath.Base(path))
		}
	}
	return loaded, broken, nil
}

// configurations returns the paths of the files that a runtime may take for configurations: in the
// directory, and in those below it.
func configurations(directory string) ([]string, error) {
	entries, err := filesystem.Directory{Path: directory}.List()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		path := filepath.Join(directory, entry.Name())
		switch info, err := os.Stat(path); {
		case err == nil && info.IsDir():
			within, err := filepath.Glob(filepath.Join(path, "*.conf")) // libcni reads only these there
			if err != nil {
				return nil, err
			}
			files = append(files, within...)
		case slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
	}
	return files, nil
}

// target returns what the path of a CNI configuration leads to. Within the directory links are
// followed as on the node; a link that leads out of it is followed as this process sees it.
func (i *Installer) target(path string) (string, error) {
	name, err := filepath.Rel(i.options.NetDir, path)
	if err != nil {
		return "", err
	}
	route, err := i.netDir().Follow(filepath.ToSlash(name), i.options.NodeNetDir)
	if errors.Is(err, filesystem.ErrOutside) {
		return filepath.EvalSymlinks(path)
	}
	return i.netDir().In(filepath.FromSlash(route.Target)), err
}

// readAsRuntimes reads the target of a path.
func (i *Installer) readAsRuntimes(path string) ([]byte, error) {
	target, err := i.target(path)
	if err != nil {
		return nil, err
	}
	return filesystem.Directory{Path: filepath.Dir(target)}.Read(filepath.Base(target), conflist.MaxSize)
}

// usesPlugin reads a configuration as libcni does: keys may have any case, and appear twice.
func usesPlugin(doc []byte, name string) (bool, error) {
	type plugin struct {
		Type string `json:"type"`
	}
	var network struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if err := json.Unmarshal(doc, &network); err != nil {
		return false, err
	}
	return network.Type == name || slices.ContainsFunc(network.Plugins, func(p plugin) bool { return p.Type == name }), nil
}
