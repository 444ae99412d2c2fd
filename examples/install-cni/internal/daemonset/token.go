// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// expiry is when a token ends: the claim exp of a JSON Web Token (RFC 7519, 4.1.4). Tokens of other forms don't say.
func expiry(token string) (at time.Time, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var said struct {
		Exp float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(claims, &said) != nil || said.Exp <= 0 {
		return time.Time{}, false
	}
	return time.Unix(int64(said.Exp), 0), true
}
