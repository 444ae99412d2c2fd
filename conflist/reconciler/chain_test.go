// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/containernetworking/cni/libcni"
)

// load loads a directory as a container runtime does: in the order of their names it tries the
// files with the three extensions, and takes the first that libcni loads. With strict it gives up
// at the first that it cannot load, as containerd does.
func load(directory string, strict bool) (list *libcni.NetworkConfigList, file string, err error) {
	files, err := libcni.ConfFiles(directory, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, "", err
	}
	sort.Strings(files)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			continue // a runtime would block there forever
		}
		list, err := loadFile(file)
		if err == nil && len(list.Plugins) > 0 {
			return list, filepath.Base(file), nil
		}
		if strict {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil, "", fmt.Errorf("none of %q can be loaded", files)
}

// loadFile loads a list, or the list that runtimes make of a single configuration.
func loadFile(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromFile(file)
	}
	conf, err := libcni.ConfFromFile(file) //nolint:staticcheck // what runtimes call
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf) //nolint:staticcheck // what runtimes call
}

func chain(list *libcni.NetworkConfigList) []string {
	var types []string
	for _, p := range list.Plugins {
		types = append(types, p.Network.Type)
	}
	return types
}

func calls(list *libcni.NetworkConfigList) int {
	n := 0
	for _, typ := range chain(list) {
		if typ == meshType {
			n++
		}
	}
	return n
}
