// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// cachedUses counts the pods' networks that the runtime will take down with our plugin: libcni keeps the configuration that each was
// made with (<cache>/results/<network>-<container>-<interface>) and calls the plugins it names on DEL. What can't be read as such an
// entry but has the plugin's name in it counts. A missing cache is fs.ErrNotExist.
func cachedUses(cacheDir, plugin string) (int, error) {
	if _, err := os.Stat(cacheDir); err != nil {
		return 0, err
	}
	results := filesystem.Directory{Path: filepath.Join(cacheDir, "results")}
	entries, err := results.List()
	if isMissing(err) {
		return 0, nil // the runtime has never made a network
	}
	if err != nil {
		return 0, fmt.Errorf("list the networks of running pods: %w", err)
	}
	uses := 0
	for _, file := range entries {
		if !file.Type().IsRegular() {
			continue
		}
		data, err := results.Read(file.Name(), maxCacheEntry)
		if isMissing(err) {
			continue // that pod has just gone
		}
		if err != nil {
			return 0, fmt.Errorf("look for the plugin in a running pod's network: %w", err)
		}
		if names(data, plugin) {
			uses++
		}
	}
	return uses, nil
}

// names reports whether a cache entry's configuration has our plugin in it.
func names(cacheEntry []byte, plugin string) bool {
	var cached struct {
		Config []byte `json:"config"` // a list; base64 in JSON
	}
	if err := json.Unmarshal(cacheEntry, &cached); err == nil && len(cached.Config) > 0 {
		_, found, err := conflist.Find(cached.Config, plugin)
		return found || (err != nil && bytes.Contains(cached.Config, []byte(plugin)))
	}
	return bytes.Contains(cacheEntry, []byte(plugin))
}
