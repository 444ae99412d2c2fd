// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"encoding/json"
	"fmt"

	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxResult bounds what is read of an entry of libcni's cache. Entries have a few KiB.
const maxResult = 1 << 20

// result is an entry of libcni's cache: what a runtime requested for a pod's network, and the
// result.
type result struct {
	attachment journal.Attachment
	// namespace, name and uid are the pod's, as the runtime passed them to the plugins.
	namespace, name, uid string
	paths                []string
}

// readResult reads <network>-<container>-<interface> in the cache (libcni/api.go, cachedInfo).
func readResult(directory, name string) (result, error) {
	data, err := filesystem.Directory{Path: directory}.Read(name, maxResult)
	if err != nil {
		return result{}, err
	}
	var cached struct {
		Kind        string      `json:"kind"`
		ContainerID string      `json:"containerId"`
		Interface   string      `json:"ifName"`
		Network     string      `json:"networkName"`
		Netns       string      `json:"netns"` // since libcni 1.2
		Args        [][2]string `json:"cniArgs"`
		Result      struct {
			Interfaces []struct {
				Sandbox string `json:"sandbox"`
			} `json:"interfaces"`
		} `json:"result"`
	}
	if err := json.Unmarshal(data, &cached); err != nil {
		return result{}, fmt.Errorf("%s is not an entry of libcni's cache: %w", name, err)
	}
	r := result{attachment: journal.Attachment{Network: cached.Network, ContainerID: cached.ContainerID, Interface: cached.Interface}}
	for _, arg := range cached.Args {
		switch arg[0] {
		case "K8S_POD_NAMESPACE":
			r.namespace = arg[1]
		case "K8S_POD_NAME":
			r.name = arg[1]
		case "K8S_POD_UID":
			r.uid = arg[1]
		}
	}
	if cached.Netns != "" {
		r.paths = append(r.paths, cached.Netns)
	}
	for _, i := range cached.Result.Interfaces {
		if i.Sandbox != "" && (len(r.paths) == 0 || r.paths[len(r.paths)-1] != i.Sandbox) {
			r.paths = append(r.paths, i.Sandbox)
		}
	}
	return r, nil
}
