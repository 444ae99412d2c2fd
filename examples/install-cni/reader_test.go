// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

// network is what a runtime calls for each pod: the types of the plugins, in order.
type network []string

// calls returns an error unless the plugin is called.
func (n network) calls(plugin string) error {
	if !slices.Contains(n, plugin) {
		return fmt.Errorf("%s isn't among the plugins %q", plugin, []string(n))
	}
	return nil
}

// watchPrimary loads the primary configuration as a runtime does, in a loop, until stop is called,
// which returns how often it did. Every configuration must be valid and pass the check.
func (n *testNode) watchPrimary(check func(network) error) (stop func() int) {
	n.t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	loads := 0
	var failure error
	go func() {
		defer close(ended)
		for failure == nil {
			select {
			case <-end:
				return
			default:
			}
			found, err := readPrimary(n.netDir)
			if err == nil {
				err = check(found)
			}
			failure = err
			loads++
		}
	}()
	return func() int {
		n.t.Helper()
		close(end)
		<-ended
		if failure != nil {
			n.t.Errorf("the reader finds, after %d good loads: %v", loads-1, failure)
		}
		return loads
	}
}

// loadPrimary loads the first configuration of a directory with the runtimes' library.
func loadPrimary(directory string) error {
	_, err := readPrimary(directory)
	return err
}

// readPrimary returns the network of the first configuration of a directory, which must be valid.
// If a file disappears between listing and reading, it lists again, as a runtime does.
func readPrimary(directory string) (network, error) {
	files, err := libcni.ConfFiles(directory, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no configuration")
	}
	slices.Sort(files)
	found, err := load(files[0])
	if errors.Is(err, fs.ErrNotExist) {
		return readPrimary(directory)
	}
	return found, err
}

// load loads a configuration as runtimes do, with the files in the directory that is named after
// its network.
func load(file string) (network, error) {
	list, err := loadList(file)
	if err != nil {
		data, _ := os.ReadFile(file) // for the message; it may have changed since
		return nil, fmt.Errorf("%w:\n%s", err, data)
	}
	var types network
	for _, plugin := range list.Plugins {
		types = append(types, plugin.Network.Type)
	}
	return types, nil
}

func loadList(file string) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(file, ".conflist") {
		return libcni.NetworkConfFromFile(file)
	}
	conf, err := libcni.ConfFromFile(file) //nolint:staticcheck // runtimes still call it
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf) //nolint:staticcheck // runtimes still call it
}

// loadPrimaryOf loads the first configuration of a directory that is a tree. It ignores other files
// that the configuration needs.
func loadPrimaryOf(networks filesystemtest.Tree) error {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) || strings.Contains(name, "/") {
			continue
		}
		var err error
		if content := []byte(networks[name].Content); strings.HasSuffix(name, ".conflist") {
			_, err = libcni.NetworkConfFromBytes(content)
		} else {
			_, err = libcni.ConfFromBytes(content) //nolint:staticcheck // runtimes still call it
		}
		return err
	}
	return errors.New("no configuration")
}
