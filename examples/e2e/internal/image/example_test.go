// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/meshcni/meshcni/examples/e2e/internal/image"
)

// An image without files is the same everywhere.
func ExampleArchive() {
	sum := func() [sha256.Size]byte {
		var archive bytes.Buffer
		if err := image.Archive(&archive, "example.com/empty:1", image.Image{Architecture: "amd64"}); err != nil {
			fmt.Println(err)
		}
		return sha256.Sum256(archive.Bytes())
	}
	first, second := sum(), sum()
	fmt.Println(first == second)
	// Output: true
}
